// Attention over keys and values of 32 bits.

#include <algorithm>

#include "attention.h"

namespace forerun {

void Attention::score_floats(const Heads& heads, Scratch& scratch) const {
  const std::size_t width = shape_.head_width();
  const float* queries[most_together];
  float* out[most_together];
  for (std::size_t h = 0; h < heads.count; ++h) {
    queries[h] = &scratch.queries[heads.head[h].query * width];
  }
  for (std::size_t first = 0; first < end_of(heads); first += lanes) {
    for (std::size_t h = 0; h < heads.count; ++h) out[h] = scores(scratch, h) + first;
    const KVPage::Floats page =
        heads.kv->page(first / page_positions).floats(heads.layer, heads.kv_head);
    const float* const keys = page.keys + first % page_positions * width;
    in_calls(heads, nullptr, [&](std::size_t h, std::size_t count) {
      row_math().scores(queries + h, count, keys, width, out + h);
    });
  }
}

void Attention::weigh_floats(const Heads& heads, Scratch& scratch) const {
  const std::size_t width = shape_.head_width(), length = heads.kv->length();
  float* out[most_together];
  for (std::size_t h = 0; h < heads.count; ++h) out[h] = &scratch.totals[h * width];
  for (std::size_t first = 0; first < length; first += page_positions) {
    const float* weights[most_together];
    for (std::size_t h = 0; h < heads.count; ++h) weights[h] = scores(scratch, h) + first;
    const KVPage::Floats page =
        heads.kv->page(first / page_positions).floats(heads.layer, heads.kv_head);
    in_calls(heads, nullptr, [&](std::size_t h, std::size_t count) {
      row_math().weigh(weights + h, count, page.values, std::min(page_positions, length - first),
                       width, out + h);
    });
  }
  for (std::size_t h = 0; h < heads.count; ++h) {
    const std::vector<int>& path = heads.kv->path(heads.head[h].local);
    for (std::size_t i = 0, run; i < path.size(); i += run) {
      // Rows that follow each other in the path and in a page are one call.
      const std::size_t at = heads.kv->place(path[i]), place = at % page_positions;
      for (run = 1; i + run < path.size() && place + run < page_positions; ++run) {
        if (heads.kv->place(path[i + run]) != at + run) break;
      }
      const float* const weights = scores(scratch, h) + length + i;
      const KVPage::Floats page =
          heads.kv->page(at / page_positions).floats(heads.layer, heads.kv_head);
      row_math().weigh(&weights, 1, page.values + place * width, run, width, &out[h]);
    }
  }
}

}  // namespace forerun
