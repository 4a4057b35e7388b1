// IEEE 754 single precision addition, round to nearest even, one sum a cycle. Any NaN result is the quiet NaN 0x7fc00000.
// Subnormals = 0 takes subnormal operands and results for zeros of their sign. Plain = 1 is smaller, for operands that
// are multiples of the smallest normal number, or infinite: no sum is subnormal then, and what would be NaN is infinite.
// Stages = 9 is for 322 MHz. With Stages = 5, for 200 MHz, the first, third, fourth and eighth stage do not end in
// registers.
//
// Stages: compare | swap and unpack | shift right by 16 and 8 | by 4 and 2 | by 1, and add | shift left by 16 | by 8 and
// 4 | count the last zeros | by 2 and 1, and round. Each step of a shift is what one LUT of six inputs selects from, and
// the last of each direction shares its LUTs with the adder behind it.
//
// The smaller operand carries three bits more (guard, round, sticky): That is enough: only an exponent difference of
// two or more shifts a bit into the sticky bit. Then the sum is shifted left by one place at most.
module fp32_adder #(
  parameter bit          Subnormals = 1'b1,
  parameter bit          Plain      = 1'b0,
  parameter int unsigned Stages     = fp32_pkg::AdderStages  // or 5
) (
  input  logic        clk_i,
  input  logic        en_i,  // every stage moves, or none
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  output logic [31:0] sum_o  // of what was taken so many enabled cycles ago
);

  function automatic logic [31:0] flushed(logic [31:0] x);
    return Subnormals || x[30:23] != 8'd0 ? x : {x[31], 31'd0};
  endfunction

  // --- 1: which is larger? Three bits a digit; the carry through the digits is that of a comparison ---
  localparam int unsigned Digits = 11;

  typedef struct packed {
    logic [31:0] a, b;
    logic        a_normal, b_normal, b_is_larger;
  } stage1_t;

  stage1_t             stage1_d, stage1;
  logic [31:0]         a, b;
  logic [3*Digits-1:0] a_digits, b_digits;
  logic [Digits-1:0]   above, not_below, unused_digits;
  logic                b_is_larger;

  assign a        = flushed(a_i);
  assign b        = flushed(b_i);
  assign a_digits = (3*Digits)'(a[30:0]);
  assign b_digits = (3*Digits)'(b[30:0]);

  always_comb begin
    for (int unsigned digit = 0; digit < Digits; digit++) begin
      above[digit]     = b_digits[3*digit +: 3] > a_digits[3*digit +: 3];
      not_below[digit] = b_digits[3*digit +: 3] >= a_digits[3*digit +: 3];
    end
  end
  assign {b_is_larger, unused_digits} = {1'b0, above} + {1'b0, not_below};

  always_comb begin
    stage1_d.a           = a;
    stage1_d.b           = b;
    stage1_d.a_normal    = a[30:23] != 8'd0;
    stage1_d.b_normal    = b[30:23] != 8'd0;
    stage1_d.b_is_larger = b_is_larger;
  end

  // --- 2: the larger and the smaller, unpacked. A subnormal number has the exponent of the smallest normal one ---
  logic [31:0] major;
  logic [30:0] minor;
  logic        major_normal, minor_normal, unused_distance;
  logic [7:0]  distance, exponent2_q, distance2_q;
  logic [23:0] major2_q, minor2_q;
  logic        sign2_q, subtracts2_q;

  assign major        = stage1.b_is_larger ? stage1.b : stage1.a;
  assign minor        = stage1.b_is_larger ? stage1.a[30:0] : stage1.b[30:0];
  assign major_normal = stage1.a_normal || stage1.b_normal;
  assign minor_normal = stage1.a_normal && stage1.b_normal;
  // A zero lies anywhere.
  assign {distance, unused_distance} = {major[30:23], 1'b1} +
                                       {~minor[30:23], Plain || stage1.a_normal == stage1.b_normal};

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      exponent2_q  <= {major[30:24], major[23] || (!Plain && !major_normal)};
      distance2_q  <= distance;
      major2_q     <= {major_normal, major[22:0]};
      minor2_q     <= {minor_normal, minor[22:0]};
      sign2_q      <= major[31];
      subtracts2_q <= stage1.a[31] != stage1.b[31];
    end
  end

  // --- 3: the smaller is shifted by 16 and 8, or away; bits that fall out set the sticky bit ---
  typedef struct packed {
    logic [25:0] minor;
    logic        sticky;
    logic [2:0]  distance;
    logic [23:0] major;
    logic [7:0]  exponent;
    logic        sign, subtracts, is_special, is_nan;
  } stage3_t;

  stage3_t     stage3_d, stage3;
  logic [25:0] coarse;
  logic        is_far, is_special, coarse_sticky;

  assign is_special = exponent2_q == 8'hff;
  assign is_far     = distance2_q[7:5] != 3'd0;
  assign coarse     = {minor2_q, 2'b00} >> {distance2_q[4:3], 3'd0};

  always_comb begin
    coarse_sticky = distance2_q[4:3] != 2'd0 && minor2_q[5:0] != 6'd0;
    if (distance2_q[4]) coarse_sticky |= minor2_q[13:6] != 8'd0;
    if (distance2_q[4:3] == 2'd3) coarse_sticky |= minor2_q[21:14] != 8'd0;
    if (is_far) coarse_sticky = minor2_q != 24'd0;
  end

  // Infinities and NaN: nothing is larger. The difference of two infinities is not a number.
  always_comb begin
    stage3_d.minor      = is_far ? '0 : coarse;
    stage3_d.sticky     = coarse_sticky;
    stage3_d.distance   = distance2_q[2:0];
    stage3_d.major      = major2_q;
    stage3_d.exponent   = exponent2_q;
    stage3_d.sign       = sign2_q;
    stage3_d.subtracts  = subtracts2_q;
    stage3_d.is_special = is_special;
    stage3_d.is_nan     = !Plain && is_special && (major2_q[22:0] != 23'd0 || (subtracts2_q && distance2_q == 8'd0));
    if (Plain && is_special) stage3_d.subtracts = 1'b0;  // their sum has the sign of the larger one
  end

  // --- 4: ... by 4 and 2 ---
  typedef struct packed {
    logic [25:0] minor;
    logic        sticky, distance;
    logic [23:0] major;
    logic [7:0]  exponent;
    logic        sign, subtracts, is_special, is_nan;
  } stage4_t;

  stage4_t stage4_d, stage4;
  logic    fine_sticky;

  always_comb begin
    fine_sticky = stage3.sticky;
    if (stage3.distance[2:1] != 2'd0) fine_sticky |= stage3.minor[1:0] != 2'd0;
    if (stage3.distance[2]) fine_sticky |= stage3.minor[3:2] != 2'd0;
    if (stage3.distance[2:1] == 2'd3) fine_sticky |= stage3.minor[5:4] != 2'd0;
  end

  always_comb begin
    stage4_d.minor      = stage3.minor >> {stage3.distance[2:1], 1'b0};
    stage4_d.sticky     = fine_sticky;
    stage4_d.distance   = stage3.distance[0];
    stage4_d.major      = stage3.major;
    stage4_d.exponent   = stage3.exponent;
    stage4_d.sign       = stage3.sign;
    stage4_d.subtracts  = stage3.subtracts;
    stage4_d.is_special = stage3.is_special;
    stage4_d.is_nan     = stage3.is_nan;
  end

  // --- 5: ... by 1, and the sum, never negative: the smaller one's complement, and one more below ---
  logic [26:0] addend;
  logic [27:0] sum5_q;
  logic [7:0]  exponent5_q;
  logic        sign5_q, subtracts5_q, is_special5_q, is_nan5_q;

  assign addend = stage4.distance ? {1'b0, stage4.minor[25:1], stage4.minor[0] || stage4.sticky}
                                  : {stage4.minor, stage4.sticky};

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      sum5_q        <= {1'b0, stage4.major, 2'b00, stage4.subtracts} +
                       {stage4.subtracts, addend ^ {27{stage4.subtracts}}};
      exponent5_q   <= stage4.exponent;
      sign5_q       <= stage4.sign;
      subtracts5_q  <= stage4.subtracts;
      is_special5_q <= stage4.is_special;
      is_nan5_q     <= stage4.is_nan;
    end
  end

  // --- 6: leading zeros are shifted out, first by 16; but no more than the exponent allows, the sum is subnormal then.
  // The exponent stands for a leading one below the place of the carry ---
  logic        jumps, is_zero;
  logic [27:0] sum6_q;
  logic [7:0]  exponent6_q;
  logic        sign6_q, is_beyond6_q, is_nan6_q;

  assign is_zero = sum5_q[11:0] == 12'd0 && sum5_q[27:12] == 16'd0;
  assign jumps   = sum5_q[27:12] == 16'd0 && (Plain || exponent5_q[7:4] != 4'd0);

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      sum6_q       <= jumps ? {sum5_q[11:0], 16'd0} : sum5_q;
      exponent6_q  <= {exponent5_q[7:4] - 4'(jumps), exponent5_q[3:0]};
      // An exact zero is +0 unless both operands are negative.
      sign6_q      <= sign5_q && !(is_zero && subtracts5_q) && !is_nan5_q;
      is_beyond6_q <= is_special5_q || (sum5_q[27] && exponent5_q == 8'd254);
      is_nan6_q    <= is_nan5_q;
    end
  end

  // --- 7: by 8 and 4 ---
  logic [1:0]  most7, shift7;
  logic [27:0] sum7_q;
  logic [7:0]  exponent7_q;
  logic        sign7_q, is_beyond7_q, is_nan7_q;

  assign most7 = Plain || exponent6_q[7:4] != 4'd0 ? 2'd3 : exponent6_q[3:2];

  always_comb begin
    if (sum6_q[27:24] != 4'd0 || most7 == 2'd0) shift7 = 2'd0;
    else if (sum6_q[23:20] != 4'd0 || most7 == 2'd1) shift7 = 2'd1;
    else if (sum6_q[19:16] != 4'd0 || most7 == 2'd2) shift7 = 2'd2;
    else shift7 = 2'd3;
  end

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      sum7_q       <= sum6_q << {shift7, 2'b00};
      exponent7_q  <= {exponent6_q[7:2] - 6'(shift7), exponent6_q[1:0]};
      sign7_q      <= sign6_q;
      is_beyond7_q <= is_beyond6_q;
      is_nan7_q    <= is_nan6_q;
    end
  end

  // --- 8: what is left to shift, and whether there will be a leading one: without it the exponent is 0 ---
  typedef struct packed {
    logic [26:0] total;  // below the leading one where nothing is to shift
    logic [1:0]  shift;
    logic [7:0]  exponent;
    logic        raises, lowers, sign, is_beyond, is_nan;
  } stage8_t;

  stage8_t     stage8_d, stage8;
  logic [1:0]  most8, shift8;
  logic        is_normal;

  assign most8 = Plain || exponent7_q[7:2] != 6'd0 ? 2'd3 : exponent7_q[1:0];

  always_comb begin
    if (sum7_q[27] || most8 == 2'd0) shift8 = 2'd0;
    else if (sum7_q[26] || most8 == 2'd1) shift8 = 2'd1;
    else if (sum7_q[25] || most8 == 2'd2) shift8 = 2'd2;
    else shift8 = 2'd3;
  end
  assign is_normal = sum7_q[27] || (sum7_q[26] && most8 != 2'd0) || (sum7_q[25] && most8[1]) ||
                     (sum7_q[24] && most8 == 2'd3);

  // The exponent changes by 1 - shift8: its lowest bit unless that is odd, all others where it is negative.
  always_comb begin
    stage8_d.total     = sum7_q[26:0];
    stage8_d.shift     = shift8;
    stage8_d.exponent  = is_normal ? exponent7_q : '0;
    stage8_d.raises    = is_normal && !shift8[0];
    stage8_d.lowers    = is_normal && shift8[1];
    stage8_d.sign      = sign7_q;
    stage8_d.is_beyond = is_beyond7_q;
    stage8_d.is_nan    = is_nan7_q;
  end

  // --- 9: by 2 and 1, and rounded; a carry out of the fraction raises the exponent, up to infinity ---
  logic [26:0] normalised;  // below the leading one: 23 bits, guard, the rest as sticky
  logic        round_up;
  logic [30:0] magnitude;
  logic [31:0] sum9_q;

  assign normalised = stage8.total << stage8.shift;
  assign round_up   = normalised[3] && (normalised[4] || normalised[2:0] != 3'd0);
  assign magnitude  = {stage8.exponent, normalised[26:4]} + {{7{stage8.lowers}}, stage8.raises, 22'd0, round_up};

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      sum9_q <= flushed({stage8.sign, magnitude});
      if (stage8.is_beyond) sum9_q[30:0] <= {8'hff, stage8.is_nan, 22'd0};
    end
  end

  assign sum_o = sum9_q;

  // --- The ends of stages that may be joined with the next ---
  if (Stages == fp32_pkg::AdderStages) begin : gen_registers
    always_ff @(posedge clk_i) begin
      if (en_i) begin
        stage1 <= stage1_d;
        stage3 <= stage3_d;
        stage4 <= stage4_d;
        stage8 <= stage8_d;
      end
    end
  end else begin : gen_wires
    assign stage1 = stage1_d;
    assign stage3 = stage3_d;
    assign stage4 = stage4_d;
    assign stage8 = stage8_d;
  end

endmodule
