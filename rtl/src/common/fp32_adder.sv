// IEEE 754 single precision addition, round to nearest even, nine stages, one sum a cycle. Any NaN result is the quiet
// NaN 0x7fc00000. Subnormals = 0 takes subnormal operands and results for zeros of their sign. Plain = 1 is smaller, for
// operands that are multiples of the smallest normal number, or infinite: no sum is subnormal then, and what would be
// NaN is infinite.
//
// Stages: compare | swap and unpack | shift right by 16 and 8 | by 4 and 2 | by 1, and add | shift left by 16 | by 8 and
// 4 | count the last zeros | by 2 and 1, and round. Each step of a shift is what one LUT of six inputs selects from, and
// the last of each direction shares its LUTs with the adder behind it.
//
// The smaller operand carries three bits more (guard, round, sticky): That is enough: only an exponent difference of
// two or more shifts a bit into the sticky bit. Then the sum is shifted left by one place at most.
module fp32_adder #(
  parameter bit Subnormals = 1'b1,
  parameter bit Plain      = 1'b0
) (
  input  logic        clk_i,
  input  logic        en_i,  // every stage moves, or none
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  output logic [31:0] sum_o  // of what was taken fp32_pkg::AdderStages enabled cycles ago
);

  function automatic logic [31:0] flushed(logic [31:0] x);
    return Subnormals || x[30:23] != 8'd0 ? x : {x[31], 31'd0};
  endfunction

  // --- 1: which is larger? Three bits a digit; the carry through the digits is that of a comparison ---
  localparam int unsigned Digits = 11;

  logic [31:0]         a, b, a1_q, b1_q;
  logic                a_normal1_q, b_normal1_q, b_is_larger1_q;
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

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      a1_q           <= a;
      b1_q           <= b;
      a_normal1_q    <= a[30:23] != 8'd0;
      b_normal1_q    <= b[30:23] != 8'd0;
      b_is_larger1_q <= b_is_larger;
    end
  end

  // --- 2: the larger and the smaller, unpacked. A subnormal number has the exponent of the smallest normal one ---
  logic [31:0] major;
  logic [30:0] minor;
  logic        major_normal, minor_normal, unused_distance;
  logic [7:0]  distance, exponent2_q, distance2_q;
  logic [23:0] major2_q, minor2_q;
  logic        sign2_q, subtracts2_q;

  assign major        = b_is_larger1_q ? b1_q : a1_q;
  assign minor        = b_is_larger1_q ? a1_q[30:0] : b1_q[30:0];
  assign major_normal = a_normal1_q || b_normal1_q;
  assign minor_normal = a_normal1_q && b_normal1_q;
  // A zero lies anywhere.
  assign {distance, unused_distance} = {major[30:23], 1'b1} + {~minor[30:23], Plain || a_normal1_q == b_normal1_q};

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      exponent2_q  <= {major[30:24], major[23] || (!Plain && !major_normal)};
      distance2_q  <= distance;
      major2_q     <= {major_normal, major[22:0]};
      minor2_q     <= {minor_normal, minor[22:0]};
      sign2_q      <= major[31];
      subtracts2_q <= a1_q[31] != b1_q[31];
    end
  end

  // --- 3: the smaller is shifted by 16 and 8, or away; bits that fall out set the sticky bit ---
  logic [25:0] minor3_q, coarse;
  logic [23:0] major3_q;
  logic        is_far, is_special, coarse_sticky, sticky3_q;
  logic [2:0]  distance3_q;
  logic [7:0]  exponent3_q;
  logic        sign3_q, subtracts3_q, is_special3_q, is_nan3_q;

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
  always_ff @(posedge clk_i) begin
    if (en_i) begin
      minor3_q      <= is_far ? '0 : coarse;
      sticky3_q     <= coarse_sticky;
      distance3_q   <= distance2_q[2:0];
      major3_q      <= major2_q;
      exponent3_q   <= exponent2_q;
      sign3_q       <= sign2_q;
      subtracts3_q  <= subtracts2_q;
      is_special3_q <= is_special;
      is_nan3_q     <= !Plain && is_special && (major2_q[22:0] != 23'd0 || (subtracts2_q && distance2_q == 8'd0));
      // Values that are known by now are not carried on; flip-flops that are reset are not made shift registers of
      // LUTs.
      if (Plain && is_special) begin
        major3_q[22:0] <= '0;
        exponent3_q    <= '0;
        distance3_q    <= '0;
        subtracts3_q   <= 1'b0;
      end
    end
  end

  // --- 4: ... by 4 and 2 ---
  logic [25:0] minor4_q;
  logic [23:0] major4_q;
  logic        fine_sticky, sticky4_q, distance4_q;
  logic [7:0]  exponent4_q;
  logic        sign4_q, subtracts4_q, is_special4_q, is_nan4_q;

  always_comb begin
    fine_sticky = sticky3_q;
    if (distance3_q[2:1] != 2'd0) fine_sticky |= minor3_q[1:0] != 2'd0;
    if (distance3_q[2]) fine_sticky |= minor3_q[3:2] != 2'd0;
    if (distance3_q[2:1] == 2'd3) fine_sticky |= minor3_q[5:4] != 2'd0;
  end

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      minor4_q      <= minor3_q >> {distance3_q[2:1], 1'b0};
      sticky4_q     <= fine_sticky;
      distance4_q   <= distance3_q[0];
      major4_q      <= major3_q;
      exponent4_q   <= exponent3_q;
      sign4_q       <= sign3_q;
      subtracts4_q  <= subtracts3_q;
      is_special4_q <= is_special3_q;
      is_nan4_q     <= is_nan3_q;
    end
  end

  // --- 5: ... by 1, and the sum, never negative: the smaller one's complement, and one more below ---
  logic [26:0] addend;
  logic [27:0] sum5_q;
  logic [7:0]  exponent5_q;
  logic        sign5_q, subtracts5_q, is_special5_q, is_nan5_q;

  assign addend = distance4_q ? {1'b0, minor4_q[25:1], minor4_q[0] || sticky4_q} : {minor4_q, sticky4_q};

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      sum5_q        <= {1'b0, major4_q, 2'b00, subtracts4_q} + {subtracts4_q, addend ^ {27{subtracts4_q}}};
      exponent5_q   <= exponent4_q;
      sign5_q       <= sign4_q;
      subtracts5_q  <= subtracts4_q;
      is_special5_q <= is_special4_q;
      is_nan5_q     <= is_nan4_q;
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
  logic [1:0]  most8, shift8, shift8_q;
  logic        is_normal, raises8_q, lowers8_q;
  logic [26:0] sum8_q;  // below the leading one where nothing is to shift
  logic [7:0]  exponent8_q;
  logic        sign8_q, is_beyond8_q, is_nan8_q;

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
  always_ff @(posedge clk_i) begin
    if (en_i) begin
      sum8_q       <= sum7_q[26:0];
      shift8_q     <= shift8;
      exponent8_q  <= is_normal ? exponent7_q : '0;
      raises8_q    <= is_normal && !shift8[0];
      lowers8_q    <= is_normal && shift8[1];
      sign8_q      <= sign7_q;
      is_beyond8_q <= is_beyond7_q;
      is_nan8_q    <= is_nan7_q;
    end
  end

  // --- 9: by 2 and 1, and rounded; a carry out of the fraction raises the exponent, up to infinity ---
  logic [26:0] normalised;  // below the leading one: 23 bits, guard, the rest as sticky
  logic        round_up;
  logic [30:0] magnitude;
  logic [31:0] sum9_q;

  assign normalised = sum8_q << shift8_q;
  assign round_up   = normalised[3] && (normalised[4] || normalised[2:0] != 3'd0);
  assign magnitude  = {exponent8_q, normalised[26:4]} + {{7{lowers8_q}}, raises8_q, 22'd0, round_up};

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      sum9_q <= flushed({sign8_q, magnitude});
      if (is_beyond8_q) sum9_q[30:0] <= {8'hff, is_nan8_q, 22'd0};
    end
  end

  assign sum_o = sum9_q;

endmodule
