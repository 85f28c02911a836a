// Attention over keys and values of 16 bits.
//
// Weights of the softmax, each multiplied by the scale of its value, are made words too, in spans
// of positions counted from the sequence's beginning. A span's products with its values are summed
// as integers, wherever the values are stored; then come floats, one span after the other.

#include <algorithm>

#include "attention.h"

namespace forerun {
namespace {

std::size_t parts_for(std::size_t positions) {
  return std::min(page_parts, (positions + lanes - 1) / lanes);
}

}  // namespace

// The page of a place.
KVPage::Words Attention::words_at(const Heads& heads, std::size_t place) {
  return heads.kv->page(place / page_positions).words(heads.layer, heads.kv_head);
}

void Attention::score_words(const Heads& heads, Scratch& scratch) const {
  const std::size_t width = shape_.head_width(), end = end_of(heads);
  const Word* queries[most_together];
  float scales[most_together];
  float* out[most_together];
  for (std::size_t h = 0; h < heads.count; ++h) {
    queries[h] = &scratch.query_words[heads.head[h].query * width];
    scales[h] = scratch.query_scales[heads.head[h].query];
  }
  for (std::size_t first = 0; first < end; first += page_positions) {
    for (std::size_t h = 0; h < heads.count; ++h) out[h] = scores(scratch, h) + first;
    const KVPage::Words words = words_at(heads, first);
    const std::size_t next = first + page_positions;
    const Word* const after = next < end ? words_at(heads, next).keys : words_at(heads, 0).values;
    in_calls(heads, after, [&](std::size_t h, std::size_t count) {
      word_math().scores(queries + h, scales + h, count, words.keys, words.key_scales, width,
                         parts_for(end - first), out + h);
    });
  }
}

// Collects the scales of the values, by place, and behind the whole committed spans, which are the
// same for all, by position for each head.
void Attention::gather_scales(const Heads& heads, Scratch& scratch) const {
  const std::size_t length = heads.kv->length(), end = end_of(heads);
  float* const by_place = scratch.place_scales.data();
  for (std::size_t first = 0; first < end; first += page_positions) {
    std::copy_n(words_at(heads, first).value_scales, page_positions, by_place + first);
  }
  const std::size_t shared = length / span_positions * span_positions;
  for (std::size_t h = 0; h < heads.count; ++h) {
    float* const scales = &scratch.scales[h * longest_];
    float* scale = std::copy(by_place + shared, by_place + length, scales + shared);
    for (const int row : heads.kv->path(heads.head[h].local)) {
      *scale++ = by_place[heads.kv->place(row)];
    }
    std::fill(scale, scales + padded(seen(heads, h)), 0.0f);
  }
}

void Attention::weigh_words(const Heads& heads, Scratch& scratch) const {
  const std::size_t width = shape_.head_width(), length = heads.kv->length();
  gather_scales(heads, scratch);
  std::int32_t* sums[most_together];
  std::size_t longest = 0;
  bool are_chains = true;  // each row's ancestors are just the rows before it
  for (std::size_t h = 0; h < heads.count; ++h) {
    sums[h] = &scratch.sums[h * width];
    longest = std::max(longest, seen(heads, h));
    const std::size_t local = heads.head[h].local;
    are_chains = are_chains && heads.kv->path(local).size() == local + 1;
  }
  for (std::size_t first = 0; first < longest; first += span_positions) {
    const std::size_t last = std::min(are_chains ? longest : length, first + span_positions);
    float scales[most_together];
    for (std::size_t h = 0; h < heads.count; ++h) {
      Word* const words = &scratch.weights[h * longest_ + first];
      const std::size_t end = std::min(seen(heads, h), first + span_positions);
      const std::size_t count = end > first ? end - first : 0;
      const bool is_shared = first + span_positions <= length;
      const float* const of_values =
          is_shared ? &scratch.place_scales[first] : &scratch.scales[h * longest_ + first];
      scales[h] = word_math().quantise_weights(scores(scratch, h) + first, of_values, count, words);
      if (are_chains) std::fill(words + padded(count), words + padded(last - first), Word{0});
      std::fill(sums[h], sums[h] + width, 0);
    }
    weigh_in_order(heads, first, last, sums, scratch);
    if (!are_chains) weigh_pending(heads, first, sums, scratch);
    for (std::size_t h = 0; h < heads.count; ++h) {
      word_math().add_scaled(sums[h], scales[h], width, &scratch.totals[h * width]);
    }
  }
}

// Adds the positions from `first` to `last` that lie in their order.
void Attention::weigh_in_order(const Heads& heads, std::size_t first, std::size_t last,
                               std::int32_t* const* sums, Scratch& scratch) const {
  Word tail[most_together][page_positions];
  for (std::size_t at = first; at < last; at += page_positions) {
    const std::size_t count = std::min(page_positions, last - at);
    const Word* weights[most_together];
    for (std::size_t h = 0; h < heads.count; ++h) {
      weights[h] = &scratch.weights[h * longest_ + at];
      if (count % 2 == 0) continue;
      // The other position of the last pair is none of them.
      std::copy(weights[h], weights[h] + count, tail[h]);
      tail[h][count] = 0;
      weights[h] = tail[h];
    }
    const std::size_t next = at + page_positions;
    const bool has_next = next < heads.kv->length();
    in_calls(heads, has_next ? words_at(heads, next).values : nullptr,
             [&](std::size_t h, std::size_t some) {
               word_math().weigh(weights + h, some, words_at(heads, at).values, (count + 1) / 2,
                                 shape_.head_width(), sums + h);
             });
  }
}

// Adds the rows of the pass whose positions are in the span that begins at `first`. All heads go
// over a page together; the rows that a head does not see have no weight.
void Attention::weigh_pending(const Heads& heads, std::size_t first, std::int32_t* const* sums,
                              Scratch& scratch) const {
  const std::size_t length = heads.kv->length();
  if (first + span_positions <= length) return;
  std::size_t next[most_together], end[most_together], page = static_cast<std::size_t>(-1);
  const std::vector<int>* paths[most_together];
  const auto page_of = [&](std::size_t h) {
    return heads.kv->place((*paths[h])[next[h]]) / page_positions;
  };
  for (std::size_t h = 0; h < heads.count; ++h) {
    paths[h] = &heads.kv->path(heads.head[h].local);
    next[h] = first > length ? first - length : 0;
    end[h] = std::min(paths[h]->size(), first + span_positions - length);
    if (next[h] < end[h]) page = std::min(page, page_of(h));
  }
  while (page != static_cast<std::size_t>(-1)) {
    Word words[most_together][page_positions] = {};
    const Word* weights[most_together];
    std::size_t last = 0, later = static_cast<std::size_t>(-1);
    for (std::size_t h = 0; h < heads.count; ++h) {
      weights[h] = words[h];
      const Word* const all = &scratch.weights[h * longest_ + length];
      for (; next[h] < end[h] && page_of(h) == page; ++next[h]) {
        const std::size_t place = heads.kv->place((*paths[h])[next[h]]) % page_positions;
        words[h][place] = all[next[h]];
        last = std::max(last, place);
      }
      if (next[h] < end[h]) later = std::min(later, page_of(h));
    }
    const KVPage::Words words_of = words_at(heads, page * page_positions);
    in_calls(heads, nullptr, [&](std::size_t h, std::size_t count) {
      word_math().weigh(weights + h, count, words_of.values, last / 2 + 1, shape_.head_width(),
                        sums + h);
    });
    page = later;
  }
}

}  // namespace forerun
