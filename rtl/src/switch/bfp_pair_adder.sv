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
  output logic [Elements-1:0][31:0] sum_o  // seven cycles later
);

  // --- For all elements: 1: the distance of exponents ---
  logic [8:0] difference;
  logic [7:0] a_exponent1_q, b_exponent1_q, distance1_q;
  logic       b_above1_q, is_far;

  assign difference = {1'b0, a_exponent_i} - {1'b0, b_exponent_i};

  always_ff @(posedge clk_i) begin
    distance1_q   <= difference[8] ? -difference[7:0] : difference[7:0];
    b_above1_q    <= difference[8];
    a_exponent1_q <= a_exponent_i;
    b_exponent1_q <= b_exponent_i;
  end

  // Bits that lie that far below do not count.
  assign is_far = distance1_q[7:5] != '0;

  // Shifts are by 1 to 15 in stage 3, by 16 in stage 4.
  logic [4:0] distance2_q;
  logic       distance3_q;

  always_ff @(posedge clk_i) begin
    distance2_q <= distance1_q[4:0];
    distance3_q <= distance2_q[4];
  end

  for (genvar element = 0; element < Elements; element++) begin : gen_element
    // --- 1: mantissas of a block of zeros are zero ---
    logic [7:0] a, b, a1_q, b1_q;
    logic       a_none1_q, b_none1_q, is_beyond1_q;

    assign a = a_i[element];
    assign b = b_i[element];

    always_ff @(posedge clk_i) begin
      a1_q      <= a_exponent_i == '0 ? '0 : a;
      b1_q      <= b_exponent_i == '0 ? '0 : b;
      a_none1_q <= a == '0;
      b_none1_q <= b == '0;
      // -128, which no encoder writes, of the largest exponent is infinite. So is the sum.
      is_beyond1_q <= (a_exponent_i == 8'd254 && a == 8'h80) || (b_exponent_i == 8'd254 && b == 8'h80);
    end

    // --- 2: select the larger operand ---
    logic       takes_b, is_none2_q;
    logic [7:0] major2_q, minor2_q, exponent2_q;

    assign takes_b = b_above1_q ? !b_none1_q : a_none1_q;

    always_ff @(posedge clk_i) begin
      major2_q    <= is_beyond1_q ? 8'h80 : takes_b ? b1_q : a1_q;
      minor2_q    <= is_far || is_beyond1_q ? '0 : takes_b ? a1_q : b1_q;
      exponent2_q <= takes_b ? b_exponent1_q : a_exponent1_q;
      is_none2_q  <= a_none1_q && b_none1_q;
    end

    // --- 3: the lower one is shifted, with its sign ---
    logic signed [10:0] shifted_some;
    logic signed [22:0] minor3_q;
    logic [7:0]         major3_q, exponent3_q;

    assign shifted_some = $signed({minor2_q, 3'b000}) >>> distance2_q[1:0];

    always_ff @(posedge clk_i) begin
      minor3_q    <= $signed({shifted_some, 12'd0}) >>> {distance2_q[3:2], 2'b00};
      major3_q    <= major2_q;
      exponent3_q <= is_none2_q ? '0 : exponent2_q;  // so they are not made shift registers of LUTs
    end

    // --- 4: and added ---
    logic [33:0] minor;
    logic [33:0] sum4_q;
    logic        sticky4_q;
    logic [7:0]  exponent4_q;

    assign minor = distance3_q ? {{17{minor3_q[22]}}, minor3_q[22:6]} : {minor3_q[22], minor3_q, 10'd0};

    always_ff @(posedge clk_i) begin
      sum4_q      <= {{major3_q[7], major3_q} + minor[33:25], minor[24:0]};
      sticky4_q   <= distance3_q && minor3_q[5:0] != '0;
      exponent4_q <= exponent3_q;
    end

    // --- 5: the magnitude, shifted left by 8 ... ---
    logic        sign, jumps, sign5_q, sticky5_q;
    logic [32:0] magnitude5_q;
    logic [7:0]  exponent5_q;

    assign sign  = sum4_q[33];
    assign jumps = sum4_q[32:25] == {8{sign}};

    always_ff @(posedge clk_i) begin
      magnitude5_q <= (jumps ? {sum4_q[24:0], 8'd0} : sum4_q[32:0]) ^ {33{sign}};
      sign5_q      <= sign;
      sticky5_q    <= sticky4_q;
      exponent5_q  <= {exponent4_q[7:3] - 5'(jumps), exponent4_q[2:0]};
    end

    // --- 6: ... and by the fours and twos that are left. The leading one is one of the first two then, where it is not
    // that of a power of two ---
    logic [1:0]  shift;
    logic [38:6] shifted;
    logic [32:7] magnitude6_q;
    logic        sign6_q, rest6_q;
    logic [7:0]  exponent6_q;

    always_comb begin
      if (magnitude5_q[32:31] != '0) shift = 2'd0;
      else if (magnitude5_q[30:29] != '0) shift = 2'd1;
      else if (magnitude5_q[28:27] != '0) shift = 2'd2;
      else shift = 2'd3;
    end
    assign shifted = 33'(({magnitude5_q, {6{sign5_q}}} << {shift, 1'b0}) >> 6);

    always_ff @(posedge clk_i) begin
      magnitude6_q <= shifted[38:13];
      rest6_q      <= sticky5_q || (shifted[12:6] ^ {7{sign5_q}}) != '0;
      sign6_q      <= sign5_q;
      exponent6_q  <= {exponent5_q[7:1] - 7'(shift), exponent5_q[0]};
    end

    // --- 7: what is left to shift, by 1, and rounded ---
    logic        is_exact, is_odd, guard, up;
    logic [7:0]  exponent;
    logic [22:0] fraction;
    logic [31:0] sum7_q;

    assign is_odd   = magnitude6_q[32] ? magnitude6_q[9] : magnitude6_q[8];
    assign guard    = magnitude6_q[32] ? magnitude6_q[8] : magnitude6_q[7];
    assign is_exact = !rest6_q && (!magnitude6_q[32] || magnitude6_q[7] == sign6_q);
    assign up       = sign6_q ? guard || (is_exact && is_odd) : guard && (!is_exact || is_odd);
    assign fraction = magnitude6_q[32] ? magnitude6_q[31:9] : magnitude6_q[30:8];
    // Of a power of two the carry is still to come.
    assign exponent = exponent6_q + {{7{magnitude6_q[32:31] == '0}}, magnitude6_q[32] || !magnitude6_q[31]};

    always_ff @(posedge clk_i) begin
      sum7_q <= {sign6_q, {exponent, fraction} + 31'(up)};
      if (!sign6_q && magnitude6_q[32:31] == '0) sum7_q <= '0;
    end

    assign sum_o[element] = sum7_q;
  end

endmodule
