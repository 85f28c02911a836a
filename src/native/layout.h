// How packed weights lie in memory, which is all that a kernel knows of them.
//
// A panel holds 16 outputs. Quantised weights are cut along the inputs into groups of 32:
//
//   4 bits  256 bytes a group: 4 chunks of 64; byte 4 o + i of chunk c has input 4 c + i of
//           output o in its low half and input 16 + 4 c + i in its high half;
//   8 bits  512 bytes a group: 8 chunks of 64; byte 4 o + i of chunk c is input 4 c + i of
//           output o.
//
// Both are unsigned: a weight without minimum is stored plus its offset, 8 or 128. 8 bits with a
// minimum hold integers of 5 bits. A chunk is one operand of four products per 32-bit lane
// (vpdpbusd). Scales stand before the values that they are for, so that a panel is read from its
// begin to its end, as memory is fastest; they are, for 16 outputs each:
//
//   without blocks  of each group a scale, then its minimum if it has one, as half floats;
//   with blocks     of each 8 groups a half float (two with minima), and then of each group two
//                   factors in a byte: of the scale and the minimum, which are the first and the
//                   second half float times them; or, without minima and signed, of its first and
//                   its last 16 inputs, which then have a scale of their own.
//
// The float layouts store 16 outputs side by side for each input.
#pragma once

#include <cstddef>

namespace forerun {

constexpr std::size_t panel_outputs = 16;
constexpr std::size_t group_inputs = 32;

enum class Layout {
  f32,
  f16,
  bf16,
  offset_4,
  minimum_4,
  offset_8,
  minimum_8,
  block_minimum_4,
  block_minimum_8,
  block_offset_8,
};

constexpr std::size_t layouts = 10;

constexpr bool is_quantised(Layout layout) { return layout >= Layout::offset_4; }

// Numbers of a quantised layout; no functions, which kernels could not share (multiply_kernels.h).
struct LayoutTraits {
  std::size_t bits;  // 4 or 8
  bool has_minimum;
  bool has_blocks;
  int offset;                     // 0, 8 or 128
  std::size_t parts;              // scales of a group, each for its share of the inputs
  std::size_t group_bytes;        // of values
  std::size_t block_groups;       // groups that share half floats
  std::size_t half_bytes;         // of these half floats
  std::size_t factor_bytes;       // of a group
  std::size_t block_scale_bytes;  // of the half floats and all factors
  std::size_t block_bytes;        // of these and the values
};

constexpr LayoutTraits traits_of(Layout layout) {
  const bool has_blocks = layout >= Layout::block_minimum_4;
  const bool has_minimum = layout == Layout::minimum_4 || layout == Layout::minimum_8 ||
                           layout == Layout::block_minimum_4 || layout == Layout::block_minimum_8;
  const bool has_4_bits = layout == Layout::offset_4 || layout == Layout::minimum_4 ||
                          layout == Layout::block_minimum_4;
  LayoutTraits traits{};
  traits.bits = has_4_bits ? 4 : 8;
  traits.has_minimum = has_minimum;
  traits.has_blocks = has_blocks;
  traits.offset = has_minimum ? 0 : 1 << (traits.bits - 1);
  traits.parts = has_blocks && !has_minimum ? 2 : 1;
  traits.group_bytes = traits.bits * group_inputs * panel_outputs / 8;
  traits.block_groups = has_blocks ? 8 : 1;
  traits.half_bytes = (has_minimum ? 4 : 2) * panel_outputs;
  traits.factor_bytes = has_blocks ? 2 * panel_outputs : 0;
  traits.block_scale_bytes = traits.half_bytes + traits.block_groups * traits.factor_bytes;
  traits.block_bytes = traits.block_scale_bytes + traits.block_groups * traits.group_bytes;
  return traits;
}

}  // namespace forerun
