// Adds block floating point of two ranks (mantissas of 7 bits) into FP32, bit for bit as if it was decoded and given to
// fp32_adder, in half the LUTs. Elements that lie in the same place of a block share exponents, so these are compared
// once; a mantissa has eight bits, so only their sum is normalised.
//
// The sum is a fixed-point number: the mantissa of the rank of the larger exponent (or of the one that is not zero), and
// 25 bits below it, into which the other mantissa is shifted. Of one that is shifted by 26 or more some bits are lost. The
// leading bit of the sum is at most one below the lowest place of the larger mantissa then, so they are below the bit
// that decides about rounding, and one bit, `sticky`, stands for them. One that is shifted by 32 or more does not change
// the larger mantissa: where that is 1, half a unit in the last place at most is taken from it, and that is a tie.
//
// A negative sum is complemented, not negated. Ones without end stand behind it then: they round up what is exact, and
// that gives the carry which was left out.
//
// Where an exponent is 255 the sum is any number: others must know that the block is not a number.
module bfp_pair_adder #(
  parameter int unsigned Elements = 2
) (
  input  logic                      clk_i,
  input  logic [7:0]                a_exponent_i,
  input  logic [7:0]                b_exponent_i,
  input  logic [Elements-1:0][7:0]  a_i,
  input  logic [Elements-1:0][7:0]  b_i,
  output logic [Elements-1:0][31:0] sum_o  // eleven cycles later
);

  // --- For all elements: 1: the difference of exponents; 2: their distance ---
  logic [8:0] difference1_q;
  logic [7:0] a_exponent1_q, b_exponent1_q, a_exponent2_q, b_exponent2_q, distance2_q;
  logic       a_zero1_q, b_zero1_q, a_top1_q, b_top1_q, b_above2_q, is_far;

  always_ff @(posedge clk_i) begin
    difference1_q <= {1'b0, a_exponent_i} - {1'b0, b_exponent_i};
    a_zero1_q     <= a_exponent_i == '0;
    b_zero1_q     <= b_exponent_i == '0;
    a_top1_q      <= a_exponent_i == 8'd254;
    b_top1_q      <= b_exponent_i == 8'd254;
    a_exponent1_q <= a_exponent_i;
    b_exponent1_q <= b_exponent_i;

    distance2_q   <= difference1_q[8] ? -difference1_q[7:0] : difference1_q[7:0];
    b_above2_q    <= difference1_q[8];
    a_exponent2_q <= a_exponent1_q;
    b_exponent2_q <= b_exponent1_q;
  end

  // Bits that lie that far below do not count.
  assign is_far = distance2_q[7:5] != '0;

  // Shifts are by 1 to 3 in stage 4, by 4 to 12 in stage 5, by 16 in stage 6.
  logic [4:0] distance3_q;
  logic [4:2] distance4_q;
  logic       distance5_q;

  always_ff @(posedge clk_i) begin
    distance3_q <= distance2_q[4:0];
    distance4_q <= distance3_q[4:2];
    distance5_q <= distance4_q[4];
  end

  for (genvar element = 0; element < Elements; element++) begin : gen_element
    // --- 1, 2: mantissas of a block of zeros are zero ---
    logic [7:0] a1_q, b1_q, a2_q, b2_q;
    logic       a_none2_q, b_none2_q, is_beyond2_q;

    always_ff @(posedge clk_i) begin
      a1_q      <= a_i[element];
      b1_q      <= b_i[element];
      a2_q      <= a_zero1_q ? '0 : a1_q;
      b2_q      <= b_zero1_q ? '0 : b1_q;
      a_none2_q <= a1_q == '0;
      b_none2_q <= b1_q == '0;
      // -128, which no encoder writes, of the largest exponent is infinite. So is the sum.
      is_beyond2_q <= (a_top1_q && a1_q == 8'h80) || (b_top1_q && b1_q == 8'h80);
    end

    // --- 3: select the larger operand ---
    logic       takes_b, is_none3_q;
    logic [7:0] major3_q, minor3_q, exponent3_q;

    assign takes_b = b_above2_q ? !b_none2_q : a_none2_q;

    always_ff @(posedge clk_i) begin
      major3_q    <= is_beyond2_q ? 8'h80 : takes_b ? b2_q : a2_q;
      minor3_q    <= is_far || is_beyond2_q ? '0 : takes_b ? a2_q : b2_q;
      exponent3_q <= takes_b ? b_exponent2_q : a_exponent2_q;
      is_none3_q  <= a_none2_q && b_none2_q;
    end

    // --- 4, 5: the lower one is shifted, with its sign ---
    logic signed [10:0] minor4_q;
    logic signed [22:0] minor5_q;
    logic [7:0]         major4_q, major5_q, exponent4_q, exponent5_q;

    always_ff @(posedge clk_i) begin
      minor4_q    <= $signed({minor3_q, 3'b000}) >>> distance3_q[1:0];
      major4_q    <= major3_q;
      exponent4_q <= is_none3_q ? '0 : exponent3_q;  // so they are not made shift registers of LUTs
      minor5_q    <= $signed({minor4_q, 12'd0}) >>> {distance4_q[3:2], 2'b00};
      major5_q    <= major4_q;
      exponent5_q <= exponent4_q;
    end

    // --- 6: and added ---
    logic [33:0] minor;
    logic [33:0] sum6_q;
    logic        sticky6_q;
    logic [7:0]  exponent6_q;

    assign minor = distance5_q ? {{17{minor5_q[22]}}, minor5_q[22:6]} : {minor5_q[22], minor5_q, 10'd0};

    always_ff @(posedge clk_i) begin
      sum6_q      <= {{major5_q[7], major5_q} + minor[33:25], minor[24:0]};
      sticky6_q   <= distance5_q && minor5_q[5:0] != '0;
      exponent6_q <= exponent5_q;
    end

    // --- 7: the magnitude, shifted left by 8 ... ---
    logic        sign, jumps, sign7_q, sticky7_q;
    logic [32:0] magnitude7_q;
    logic [7:0]  exponent7_q;

    assign sign  = sum6_q[33];
    assign jumps = sum6_q[32:25] == {8{sign}};

    always_ff @(posedge clk_i) begin
      magnitude7_q <= (jumps ? {sum6_q[24:0], 8'd0} : sum6_q[32:0]) ^ {33{sign}};
      sign7_q      <= sign;
      sticky7_q    <= sticky6_q;
      exponent7_q  <= {exponent6_q[7:3] - 5'(jumps), exponent6_q[2:0]};
    end

    // --- 8: how many fours and twos are left; 9: shifted by these. The leading one is one of the first two then, where it
    // is not that of a power of two ---
    logic [1:0]  shift8_q;
    logic [32:0] magnitude8_q;
    logic        sign8_q, sticky8_q;
    logic [7:0]  exponent8_q;

    always_ff @(posedge clk_i) begin
      if (magnitude7_q[32:31] != '0) shift8_q <= 2'd0;
      else if (magnitude7_q[30:29] != '0) shift8_q <= 2'd1;
      else if (magnitude7_q[28:27] != '0) shift8_q <= 2'd2;
      else shift8_q <= 2'd3;
      magnitude8_q <= magnitude7_q;
      sign8_q      <= sign7_q;
      sticky8_q    <= sticky7_q;
      exponent8_q  <= exponent7_q;
    end

    logic [38:6] shifted;
    logic [32:7] magnitude9_q;
    logic        sign9_q, rest9_q;
    logic [7:0]  exponent9_q;

    assign shifted = 33'(({magnitude8_q, {6{sign8_q}}} << {shift8_q, 1'b0}) >> 6);

    always_ff @(posedge clk_i) begin
      magnitude9_q <= shifted[38:13];
      rest9_q      <= sticky8_q || (shifted[12:6] ^ {7{sign8_q}}) != '0;
      sign9_q      <= sign8_q;
      exponent9_q  <= {exponent8_q[7:1] - 7'(shift8_q), exponent8_q[0]};
    end

    // --- 10: what is left to shift, and whether to round up ---
    logic        is_exact, is_odd, guard, up10_q, shifts10_q, is_zero10_q, sign10_q, top10_q;
    logic [30:8] magnitude10_q;
    logic [7:0]  exponent10_q;

    assign is_odd   = magnitude9_q[32] ? magnitude9_q[9] : magnitude9_q[8];
    assign guard    = magnitude9_q[32] ? magnitude9_q[8] : magnitude9_q[7];
    assign is_exact = !rest9_q && (!magnitude9_q[32] || magnitude9_q[7] == sign9_q);

    always_ff @(posedge clk_i) begin
      up10_q        <= sign9_q ? guard || (is_exact && is_odd) : guard && (!is_exact || is_odd);
      shifts10_q    <= !magnitude9_q[32];
      is_zero10_q   <= !sign9_q && magnitude9_q[32:31] == '0;
      sign10_q      <= sign9_q;
      magnitude10_q <= magnitude9_q[30:8];
      top10_q       <= magnitude9_q[31];
      // Of a power of two the carry is still to come.
      exponent10_q  <= exponent9_q + {{7{magnitude9_q[32:31] == '0}}, magnitude9_q[32] || !magnitude9_q[31]};
    end

    // --- 11: shifted by 1, and rounded ---
    logic [22:0] fraction;
    logic [31:0] sum11_q;

    assign fraction = shifts10_q ? magnitude10_q : {top10_q, magnitude10_q[30:9]};

    always_ff @(posedge clk_i) begin
      sum11_q <= {sign10_q, {exponent10_q, fraction} + 31'(up10_q)};
      if (is_zero10_q) sum11_q <= '0;
    end

    assign sum_o[element] = sum11_q;
  end

endmodule
