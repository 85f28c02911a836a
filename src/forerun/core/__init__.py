"""The exact core: warp, noise, proposals, draft trees, rules, stop. numpy only."""
