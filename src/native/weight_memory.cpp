#include "weight_memory.h"

#include <cstring>
#include <mutex>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace forerun {
namespace {

#ifdef __SANITIZE_ADDRESS__  // every matrix apart, so that reads beyond it are found
constexpr std::size_t page_bytes = 64;
constexpr std::size_t slab_bytes = 64;
#else
constexpr std::size_t page_bytes = std::size_t{2} << 20;
constexpr std::size_t slab_bytes = 16 * page_bytes;  // what is never written costs no memory
#endif

std::size_t round_up(std::size_t size, std::size_t to) { return (size + to - 1) / to * to; }

class Slab {
 public:
  explicit Slab(std::size_t size)
      : size_(size),
        data_(static_cast<std::uint8_t*>(::operator new(size, std::align_val_t{page_bytes}))) {
#ifdef MADV_HUGEPAGE
    // A wish: a system that does not grant it serves small pages.
    madvise(data_, size_, MADV_HUGEPAGE);
#endif
  }
  ~Slab() { ::operator delete(data_, std::align_val_t{page_bytes}); }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // Null if there is not the room.
  std::uint8_t* take(std::size_t bytes) {
    if (bytes > size_ - taken_) return nullptr;
    std::uint8_t* const part = data_ + taken_;
    taken_ += bytes;
    return part;
  }

 private:
  std::size_t size_;
  std::size_t taken_ = 0;
  std::uint8_t* data_;
};

}  // namespace

std::shared_ptr<std::uint8_t> weight_memory(std::size_t bytes) {
  static std::mutex mutex;
  static std::weak_ptr<Slab> latest;
  const std::size_t size = round_up(bytes, 64);
  std::shared_ptr<Slab> slab;
  std::uint8_t* part = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    slab = latest.lock();
    if (slab) part = slab->take(size);
    if (part == nullptr) {
      slab = std::make_shared<Slab>(size < slab_bytes ? slab_bytes : round_up(size, page_bytes));
      part = slab->take(size);
      latest = slab;
    }
  }
  std::memset(part, 0, size);
  return {slab, part};
}

}  // namespace forerun
