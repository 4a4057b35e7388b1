// Makes a beat of four 16-bit floats numbers in FP32, exactly; the two words of another format pass. No registers.
//
// bf16 is the upper half of FP32. fp16 is scaled by 2^-112: then its exponents 0 to 30 are FP32's, for subnormal numbers
// too, and its fraction the upper bits of FP32's. Sums have the same bits as without the scale: those that it makes
// subnormal are below 2^-14, and of these FP32 holds every multiple of 2^-24. half_encoder takes the scale away.
//
// Lanes 0 and 1 take the words, so halves 1 and 3 too: they lie in the words' upper halves. Halves 0 and 2 take lanes 2
// and 3.
module half_decoder (
  input  logic [63:0]      beat_i,
  input  logic             is_half_i,
  input  logic             is_fp16_i,  // only of halves: else bf16
  output logic [3:0][31:0] numbers_o
);

  for (genvar half = 0; half < 4; half++) begin : gen_half
    localparam int unsigned Lane = half % 2 == 1 ? half / 2 : 2 + half / 2;

    logic [15:0] bits, below;
    logic        is_special;  // infinite, or NaN

    assign bits       = beat_i[16*half +: 16];
    assign is_special = bits[14:10] == '1;
    assign below      = half % 2 == 1 && !is_half_i ? beat_i[16*(half/2*2) +: 16] : '0;

    assign numbers_o[Lane] = is_fp16_i ? {bits[15], {3{is_special}}, bits[14:0], 13'd0} : {bits, below};
  end

endmodule
