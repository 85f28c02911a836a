// Keys and values of one sequence, in pages of 32 positions that forks share.
//
// The rows of a pass wait in the places behind the committed end, in the order of the pass, until
// a path of them is committed. So a chain that holds lies where it must already, rows see each
// other without being copied, siblings never overwrite each other, and what a row computes does not
// depend on where its ancestors lie. What is stored in 16 bits is rounded once, before any row uses
// it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "network.h"
#include "word_math.h"

namespace forerun {

enum class KVType { floats, words };  // of 32 and of 16 bits

struct KVShape {
  std::size_t layers;
  std::size_t kv_heads;
  std::size_t width;  // of a head, padded to a multiple of `lanes`
  KVType type;

  bool operator==(const KVShape& other) const {
    return layers == other.layers && kv_heads == other.kv_heads && width == other.width &&
           type == other.type;
  }
};

// Keys and values of 32 positions in all layers; a new page is all zeros.
class KVPage {
 public:
  // One head, as floats: a part of a page is `lanes` positions.
  struct Floats {
    float* keys;    // [part][width][lanes]
    float* values;  // [position][width]
  };

  // One head, as words with a scale for each position.
  struct Words {
    Word* keys;    // [part][width / 2][lanes][2]
    Word* values;  // [position / 2][width][2]
    float* key_scales;
    float* value_scales;
  };

  explicit KVPage(const KVShape& shape);
  KVPage(const KVPage& other);
  KVPage& operator=(const KVPage&) = delete;

  Floats floats(std::size_t layer, std::size_t head);
  Words words(std::size_t layer, std::size_t head);

  // Write `size` components of one position of one head; the rest of `width` stays zero.
  void put_key(std::size_t layer, std::size_t head, std::size_t place, const float* key,
               std::size_t size);
  void put_value(std::size_t layer, std::size_t head, std::size_t place, const float* value,
                 std::size_t size);

  // Takes `count` positions in all layers from another page, or from behind in the same one; here
  // and there within one part.
  void take(std::size_t place, KVPage& from, std::size_t from_place, std::size_t count);

  // Bytes of one head.
  static std::size_t head_bytes(const KVShape& shape);

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };

  std::byte* head(std::size_t layer, std::size_t head) {
    return bytes_.get() + (layer * shape_.kv_heads + head) * head_bytes(shape_);
  }
  std::size_t size() const { return shape_.layers * shape_.kv_heads * head_bytes(shape_); }

  KVShape shape_;
  std::unique_ptr<std::byte[], Free> bytes_;
};

class KVSequence {
 public:
  explicit KVSequence(const KVShape& shape) : shape_(shape) {}

  // The committed part of another sequence; full pages stay shared.
  KVSequence(const KVSequence& other);
  KVSequence& operator=(const KVSequence&) = delete;

  const KVShape& shape() const { return shape_; }
  std::size_t length() const { return length_; }

  // Starts a pass of rows with these parents (an earlier row, or -1 for the committed end), and
  // drops the last pass's rows. Throws std::invalid_argument if a parent is no earlier row.
  // `names`, in ascending order, are what `commit` calls the rows; by default 0, 1, 2, ...
  void begin(const std::vector<int>& parents, std::vector<int> names = {});

  // The rows from the committed end down to `row`, itself included.
  const std::vector<int>& path(std::size_t row) const { return paths_[row]; }

  // Where the row waits, counted from the text's beginning.
  std::size_t place(int row) const { return length_ + static_cast<std::size_t>(row); }

  // Of committed positions, and of the places of the last pass's rows.
  KVPage& page(std::size_t index) { return *pages_[index]; }

  // Keeps these rows of the last pass, each the parent of the next, and drops the others.
  // Throws std::invalid_argument if they are no path from the committed end, and
  // std::out_of_range, which says the name, if one is no row of it.
  void commit(std::vector<int> path);

  // Forgets all but the first `length` tokens. Throws std::invalid_argument if there are fewer.
  void rollback(std::size_t length);

  // Forgets the rows of the last pass.
  void drop();

 private:
  int row_called(int name) const;
  KVPage& own_page(std::size_t index);

  KVShape shape_;
  std::size_t length_ = 0;
  std::vector<std::shared_ptr<KVPage>> pages_;  // some more than committed positions need
  std::vector<std::vector<int>> paths_;
  std::vector<int> names_;  // empty: each row's own number
};

}  // namespace forerun
