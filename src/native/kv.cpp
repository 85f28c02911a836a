#include "kv.h"

#include "aligned.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace forerun {

namespace {

// More pages behind the committed end are given back after a pass: prefills are large and rare.
constexpr std::size_t most_kept = 4;

std::size_t pages_for(std::size_t positions) {
  return (positions + page_positions - 1) / page_positions;
}

// Where a position's first key and value are, of one head.
std::size_t key_floats(std::size_t place, std::size_t width) {
  return place / lanes * lanes * width + place % lanes;
}

std::size_t key_words(std::size_t place, std::size_t width) {
  return place / lanes * lanes * width + place % lanes * 2;
}

std::size_t value_words(std::size_t place, std::size_t width) {
  return place / 2 * 2 * width + place % 2;
}

// Positions that follow each other, in one part of a page here and there.
struct Run {
  std::size_t from;
  std::size_t to;
  std::size_t count;
};

void copy(const KVPage::Floats& from, const KVPage::Floats& to, const Run& run,
          std::size_t width) {
  const float* const source = from.keys + key_floats(run.from, width);
  float* const keys = to.keys + key_floats(run.to, width);
  for (std::size_t i = 0; i < width; ++i) {
    std::copy_n(source + i * lanes, run.count, keys + i * lanes);
  }
  std::copy_n(from.values + run.from * width, run.count * width, to.values + run.to * width);
}

void copy(const KVPage::Words& from, const KVPage::Words& to, const Run& run,
          std::size_t width) {
  const Word* const source_keys = from.keys + key_words(run.from, width);
  Word* const keys = to.keys + key_words(run.to, width);
  for (std::size_t i = 0; i < width; i += 2) {
    std::copy_n(source_keys + i * lanes, 2 * run.count, keys + i * lanes);
  }
  for (std::size_t k = 0; k < run.count; ++k) {
    const Word* const source = from.values + value_words(run.from + k, width);
    Word* const values = to.values + value_words(run.to + k, width);
    for (std::size_t i = 0; i < width; ++i) values[2 * i] = source[2 * i];
  }
  std::copy_n(from.key_scales + run.from, run.count, to.key_scales + run.to);
  std::copy_n(from.value_scales + run.from, run.count, to.value_scales + run.to);
}

float quantise(const float* x, std::size_t size, float limit, Word* words) {
  if (size % lanes == 0) return word_math().quantise(x, size, limit, words);
  float all[most_head_width] = {};
  std::copy(x, x + size, all);
  return word_math().quantise(all, padded(size), limit, words);
}

}  // namespace

KVPage::KVPage(const KVShape& shape)
    : shape_(shape), bytes_(new (std::align_val_t(cache_line)) std::byte[size()]()) {}

KVPage::KVPage(const KVPage& other) : KVPage(other.shape_) {
  std::memcpy(bytes_.get(), other.bytes_.get(), size());
}

void KVPage::Free::operator()(std::byte* bytes) const {
  ::operator delete[](bytes, std::align_val_t(cache_line));
}

std::size_t KVPage::head_bytes(const KVShape& shape) {
  const std::size_t values = 2 * shape.width * page_positions;
  if (shape.type == KVType::floats) return values * sizeof(float);
  return values * sizeof(Word) + 2 * page_positions * sizeof(float);
}

KVPage::Floats KVPage::floats(std::size_t layer, std::size_t head_index) {
  float* const keys = reinterpret_cast<float*>(head(layer, head_index));
  return {keys, keys + shape_.width * page_positions};
}

KVPage::Words KVPage::words(std::size_t layer, std::size_t head_index) {
  std::byte* const bytes = head(layer, head_index);
  Word* const keys = reinterpret_cast<Word*>(bytes);
  Word* const values = keys + shape_.width * page_positions;
  float* const scales = reinterpret_cast<float*>(values + shape_.width * page_positions);
  return {keys, values, scales, scales + page_positions};
}

void KVPage::put_key(std::size_t layer, std::size_t head, std::size_t place, const float* key,
                     std::size_t size) {
  const std::size_t width = shape_.width;
  if (shape_.type == KVType::floats) {
    float* const keys = floats(layer, head).keys + key_floats(place, width);
    for (std::size_t i = 0; i < size; ++i) keys[i * lanes] = key[i];
    return;
  }
  const Words to = words(layer, head);
  Word stored[most_head_width];
  to.key_scales[place] = quantise(key, size, key_limit, stored);
  Word* const keys = to.keys + key_words(place, width);
  for (std::size_t i = 0; i < width; i += 2) {
    std::memcpy(keys + i * lanes, stored + i, 2 * sizeof(Word));
  }
}

void KVPage::put_value(std::size_t layer, std::size_t head, std::size_t place, const float* value,
                       std::size_t size) {
  const std::size_t width = shape_.width;
  if (shape_.type == KVType::floats) {
    std::memcpy(floats(layer, head).values + place * width, value, size * sizeof(float));
    return;
  }
  const Words to = words(layer, head);
  Word stored[most_head_width];
  to.value_scales[place] = quantise(value, size, value_limit, stored);
  Word* const values = to.values + value_words(place, width);
  for (std::size_t i = 0; i < width; ++i) values[2 * i] = stored[i];
}

void KVPage::take(std::size_t place, KVPage& from, std::size_t from_place, std::size_t count) {
  const Run run{from_place, place, count};
  for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      if (shape_.type == KVType::floats) {
        copy(from.floats(layer, head), floats(layer, head), run, shape_.width);
      } else {
        copy(from.words(layer, head), words(layer, head), run, shape_.width);
      }
    }
  }
}

KVSequence::KVSequence(const KVSequence& other)
    : shape_(other.shape_),
      length_(other.length_),
      pages_(other.pages_.begin(),
             other.pages_.begin() + static_cast<std::ptrdiff_t>(pages_for(other.length_))) {}

void KVSequence::begin(const std::vector<int>& parents, std::vector<int> names) {
  drop();
  std::vector<std::vector<int>> paths;
  paths.reserve(parents.size());
  for (std::size_t row = 0; row < parents.size(); ++row) {
    const int parent = parents[row];
    if (parent < -1 || parent >= static_cast<int>(row)) {
      throw std::invalid_argument("a row's parent is no earlier row");
    }
    paths.push_back(parent < 0 ? std::vector<int>() : paths[static_cast<std::size_t>(parent)]);
    paths.back().push_back(static_cast<int>(row));
  }
  const std::size_t end = length_ + parents.size();
  for (std::size_t i = length_ / page_positions; i < pages_for(end); ++i) own_page(i);
  paths_ = std::move(paths);
  names_ = std::move(names);
}

int KVSequence::row_called(int name) const {
  const auto found = std::lower_bound(names_.begin(), names_.end(), name);
  const bool is_there = names_.empty() ? name >= 0 && static_cast<std::size_t>(name) < paths_.size()
                                       : found != names_.end() && *found == name;
  if (!is_there) throw std::out_of_range(std::to_string(name));
  return names_.empty() ? name : static_cast<int>(found - names_.begin());
}

void KVSequence::commit(std::vector<int> path) {
  for (int& row : path) row = row_called(row);
  if (!path.empty() && paths_[static_cast<std::size_t>(path.back())] != path) {
    throw std::invalid_argument("the rows are no path from the committed end");
  }
  for (std::size_t i = 0, count; i < path.size(); i += count) {
    const std::size_t from = place(path[i]), to = length_ + i;
    const std::size_t room = lanes - std::max(from % lanes, to % lanes);
    for (count = 1; i + count < path.size() && count < room; ++count) {
      if (place(path[i + count]) != from + count) break;
    }
    if (from == to) continue;
    own_page(to / page_positions)
        .take(to % page_positions, page(from / page_positions), from % page_positions, count);
  }
  length_ += path.size();
  drop();
}

void KVSequence::rollback(std::size_t length) {
  if (length > length_) throw std::invalid_argument("there are fewer tokens than that");
  length_ = length;
  pages_.resize(pages_for(length));
  drop();
}

void KVSequence::drop() {
  paths_.clear();
  names_.clear();
  pages_.resize(std::min(pages_.size(), pages_for(length_) + most_kept));
}

// The page, made if it is the next one, and copied first if another sequence holds it too.
KVPage& KVSequence::own_page(std::size_t index) {
  if (index == pages_.size()) {
    pages_.push_back(std::make_shared<KVPage>(shape_));
  } else if (pages_[index].use_count() > 1) {
    pages_[index] = std::make_shared<KVPage>(*pages_[index]);
  }
  return *pages_[index];
}

}  // namespace forerun
