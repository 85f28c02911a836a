#include "kv.h"

#include <cstring>
#include <new>
#include <stdexcept>

namespace forerun {

constexpr std::align_val_t cache_line{64};

// More pending pages than this are given back after a pass: prefills are large and rare.
constexpr std::size_t most_kept = 4;

KVPage::KVPage(const KVShape& shape)
    : shape_(shape), floats_(new (cache_line) float[size()]()) {}

KVPage::KVPage(const KVPage& other) : KVPage(other.shape_) {
  std::memcpy(floats_.get(), other.floats_.get(), size() * sizeof(float));
}

void KVPage::Free::operator()(float* floats) const { ::operator delete[](floats, cache_line); }

void KVPage::put(std::size_t layer, std::size_t head, std::size_t place, const float* key,
                 const float* value, std::size_t size) {
  float* const to = keys(layer, head) + place;
  for (std::size_t i = 0; i < size; ++i) to[i * lanes] = key[i];
  std::memcpy(values(layer, head) + place * shape_.width, value, size * sizeof(float));
}

void KVPage::take(std::size_t place, KVPage& from, std::size_t from_place) {
  const std::size_t width = shape_.width;
  for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      float* const to = keys(layer, head) + place;
      const float* const key = from.keys(layer, head) + from_place;
      for (std::size_t i = 0; i < width; ++i) to[i * lanes] = key[i * lanes];
      std::memcpy(values(layer, head) + place * width,
                  from.values(layer, head) + from_place * width, width * sizeof(float));
    }
  }
}

KVSequence::KVSequence(const KVSequence& other)
    : shape_(other.shape_), length_(other.length_), pages_(other.pages_) {}

void KVSequence::begin(const std::vector<int>& parents) {
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
  while (pending_.size() * lanes < parents.size()) {
    pending_.push_back(std::make_unique<KVPage>(shape_));
  }
  paths_ = std::move(paths);
}

void KVSequence::commit(const std::vector<int>& path) {
  const std::size_t last = path.empty() ? 0 : static_cast<std::size_t>(path.back());
  if (!path.empty() && (path.back() < 0 || last >= paths_.size() || paths_[last] != path)) {
    throw std::invalid_argument("the rows are no path from the committed end");
  }
  for (std::size_t i = 0; i < path.size(); ++i) {
    const std::size_t row = static_cast<std::size_t>(path[i]), place = length_ + i;
    own_page(place / lanes).take(place % lanes, pending(row / lanes), row % lanes);
  }
  length_ += path.size();
  drop();
}

void KVSequence::rollback(std::size_t length) {
  if (length > length_) throw std::invalid_argument("there are fewer tokens than that");
  length_ = length;
  pages_.resize((length + lanes - 1) / lanes);
  drop();
}

void KVSequence::drop() {
  paths_.clear();
  if (pending_.size() > most_kept) pending_.resize(most_kept);
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
