// Attention alone, for Python: tests against the twin in targets/word_attention.py.

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "attention.h"
#include "bindings.h"
#include "python_lock.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forerun {
namespace {

using Heads = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::numpy, float, nb::ndim<3>>;

// Keys and values of `rows` positions from `first` on, as pending rows with these parents.
void put(KVSequence& kv, const Heads& keys, const Heads& values, std::size_t first,
         const std::vector<int>& parents) {
  kv.begin(parents);
  const std::size_t kv_heads = keys.shape(1), size = keys.shape(2);
  for (std::size_t row = 0; row < parents.size(); ++row) {
    const std::size_t place = kv.place(static_cast<int>(row));
    KVPage& page = kv.page(place / page_positions);
    for (std::size_t head = 0; head < kv_heads; ++head) {
      const std::size_t at = ((first + row) * kv_heads + head) * size;
      page.put_key(0, head, place % page_positions, keys.data() + at, size);
      page.put_value(0, head, place % page_positions, values.data() + at, size);
    }
  }
}

// Commits the first `count` positions, which are a chain.
void commit(KVSequence& kv, const Heads& keys, const Heads& values, std::size_t count) {
  std::vector<int> rows(count), parents(count);
  std::iota(rows.begin(), rows.end(), 0);
  std::iota(parents.begin(), parents.end(), -1);
  put(kv, keys, values, 0, parents);
  kv.commit(rows);
}

void check(const Heads& queries, const Heads& keys, const Heads& values,
           const std::vector<int>& parents, std::size_t kv_bits, std::size_t threads) {
  const std::size_t heads = queries.shape(1), kv_heads = keys.shape(1), size = keys.shape(2);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (keys.shape(axis) != values.shape(axis)) throw std::invalid_argument("keys, not values");
  }
  if (kv_heads == 0 || heads % kv_heads != 0) throw std::invalid_argument("heads in no groups");
  if (size == 0 || size > most_head_width || queries.shape(2) != size) {
    throw std::invalid_argument("heads of a wrong size");
  }
  if (parents.size() != queries.shape(0) || parents.size() > keys.shape(0)) {
    throw std::invalid_argument("lists of different lengths");
  }
  if (kv_bits != 16 && kv_bits != 32) throw std::invalid_argument("neither 16 nor 32 bits");
  if (threads == 0) throw std::invalid_argument("no threads");
}

void attend_to(const Heads& queries, const Heads& keys, const Heads& values,
               const std::vector<int>& parents, KVType type, std::size_t threads, float* out) {
  const std::size_t rows = parents.size(), heads = queries.shape(1), size = queries.shape(2);
  Shape shape{};
  shape.heads = heads;
  shape.kv_heads = keys.shape(1);
  shape.head_dim = size;
  KVSequence kv(KVShape{1, shape.kv_heads, shape.head_width(), type});
  commit(kv, keys, values, keys.shape(0) - rows);
  put(kv, keys, values, keys.shape(0) - rows, parents);
  std::vector<Group> groups(1);
  groups[0].kv = &kv;
  groups[0].rows.resize(rows);
  std::iota(groups[0].rows.begin(), groups[0].rows.end(), std::size_t{0});
  Attention attention(shape, type, threads);
  attention.prepare(groups, rows);
  Activations attended;
  attended.resize(rows, shape.query_width(), true);
  ThreadPool pool(threads);
  pool.run([&](std::size_t thread) {
    attention.share_out(groups, thread);
    attention.take_queries(thread, [&](std::size_t row, std::size_t head, float* query) {
      std::copy_n(queries.data() + (row * heads + head) * size, size, query);
    });
    attention.run(0, thread, attended);
  });
  for (std::size_t row = 0; row < rows; ++row) {
    std::copy_n(attended.row(row), shape.query_width(), out + row * shape.query_width());
  }
}

Result attend(const Heads& queries, const Heads& keys, const Heads& values,
              const std::vector<int>& parents, std::size_t kv_bits, std::size_t threads) {
  check(queries, keys, values, parents, kv_bits, threads);
  std::unique_ptr<float[]> out(new float[queries.size()]);
  {
    const Released released;
    const KVType type = kv_bits == 16 ? KVType::words : KVType::floats;
    attend_to(queries, keys, values, parents, type, threads, out.get());
  }
  float* const data = out.get();
  nb::capsule owner(out.release(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Result(data, {queries.shape(0), queries.shape(1), queries.shape(2)}, owner);
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attend", &attend, "queries"_a.noconvert(), "keys"_a.noconvert(), "values"_a.noconvert(),
        "parents"_a, "kv_bits"_a = 16, "threads"_a = 1,
        "What each row makes of the committed positions, its ancestors and itself: float32 "
        "[rows, heads, head_dim], of keys and values [committed + rows, kv_heads, head_dim].");
}

}  // namespace forerun
