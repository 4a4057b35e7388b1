// Rounds four sums in FP32 to 16-bit floats, to the nearest, ties to even: the opposite of half_decoder, whose lanes and
// scale it takes. Words pass. No registers. The sums are fp32_adder's: a NaN is the quiet one. One of fp16 that is
// subnormal is exact, as half_decoder says.
module half_encoder (
  input  logic [3:0][31:0] sums_i,
  input  logic             is_half_i,
  input  logic             is_fp16_i,  // only of halves: else bf16
  output logic [63:0]      beat_o
);

  localparam logic [7:0] Infinite = 8'd31;  // the exponent of fp16 from which on a sum is infinite, or NaN

  for (genvar half = 0; half < 4; half++) begin : gen_half
    localparam int unsigned Lane = half % 2 == 1 ? half / 2 : 2 + half / 2;

    logic [31:0] sum;
    logic [15:0] bits;
    logic        up;

    assign sum = sums_i[Lane];

    always_comb begin
      bits = sums_i[half/2][16*(half%2) +: 16];
      up   = 1'b0;
      if (is_fp16_i) begin
        bits = {sum[31], sum[27:13]};
        up   = sum[12] && (sum[13] || sum[11:0] != '0);
        if (sum[30:23] >= Infinite) begin
          bits[14:0] = {5'h1f, sum[30:23] == '1 && sum[22], 9'd0};
          up         = 1'b0;
        end
      end else if (is_half_i) begin
        bits = sum[31:16];
        up   = sum[15] && (sum[16] || sum[14:0] != '0);
      end
    end

    // A carry out of the fraction raises the exponent, up to infinity.
    assign beat_o[16*half +: 16] = bits + 16'(up);
  end

endmodule
