// IEEE 754 single precision addition, round to nearest even, eight stages, one sum a cycle. Any NaN result is the quiet
// NaN 0x7fc00000. Subnormals = 0 takes subnormal operands and results for zeros of their sign.
//
// Stages: compare | swap and unpack | coarse shift | fine shift | add | count leading zeros | normalise | round.
// The smaller operand carries three bits more (guard, round, sticky): enough, since only an exponent difference of two
// or more shifts anything into the sticky bit, and then the sum is shifted left by one place at most.
module fp32_adder #(
  parameter bit Subnormals = 1'b1
) (
  input  logic        clk_i,
  input  logic        en_i,  // every stage moves, or none
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  output logic [31:0] sum_o  // of what was taken eight enabled cycles ago
);

  // What the rounding of infinities and NaN comes to; it travels beside the numbers.
  typedef struct packed {
    logic is_nan;
    logic is_inf;
    logic inf_sign;
  } special_t;

  function automatic logic [31:0] flushed(logic [31:0] x);
    return Subnormals || x[30:23] != 8'd0 ? x : {x[31], 31'd0};
  endfunction

  function automatic logic is_inf(logic [30:0] x);
    return x[30:23] == 8'hff && x[22:0] == 23'd0;
  endfunction

  function automatic logic is_nan(logic [30:0] x);
    return x[30:23] == 8'hff && x[22:0] != 23'd0;
  endfunction

  // --- 1: which is larger? ---
  logic [31:0] a, b, a1_q, b1_q;
  logic        b_is_larger1_q;
  special_t    special1_q;

  assign a = flushed(a_i);
  assign b = flushed(b_i);

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      a1_q                <= a;
      b1_q                <= b;
      b_is_larger1_q      <= b[30:0] > a[30:0];
      special1_q.is_nan   <= is_nan(a[30:0]) || is_nan(b[30:0]) ||
                             (is_inf(a[30:0]) && is_inf(b[30:0]) && a[31] != b[31]);
      special1_q.is_inf   <= is_inf(a[30:0]) || is_inf(b[30:0]);
      special1_q.inf_sign <= is_inf(a[30:0]) ? a[31] : b[31];
    end
  end

  // --- 2: the larger and the smaller, unpacked ---
  logic [31:0] major, minor;
  logic [7:0]  major_exponent, minorexponent, exponent2_q, distance2_q;
  logic [23:0] major2_q, minor2_q;
  logic        sign2_q, subtracts2_q, both_negative2_q;
  special_t    special2_q;

  assign major          = b_is_larger1_q ? b1_q : a1_q;
  assign minor         = b_is_larger1_q ? a1_q : b1_q;
  assign major_exponent = major[30:23] == 8'd0 ? 8'd1 : major[30:23];
  assign minorexponent = minor[30:23] == 8'd0 ? 8'd1 : minor[30:23];

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      exponent2_q      <= major_exponent;
      distance2_q      <= major_exponent - minorexponent;
      major2_q         <= {major[30:23] != 8'd0, major[22:0]};
      minor2_q         <= {minor[30:23] != 8'd0, minor[22:0]};
      sign2_q          <= major[31];
      subtracts2_q     <= major[31] != minor[31];
      both_negative2_q <= major[31] && minor[31];
      special2_q       <= special1_q;
    end
  end

  // --- 3: the smaller is shifted by multiples of eight; what falls out is remembered as sticky ---
  logic [26:0] minor3_q, major3_q;
  logic [2:0]  fine3_q;
  logic        sticky3_q;
  logic [7:0]  exponent3_q;
  logic        sign3_q, subtracts3_q, both_negative3_q;
  special_t    special3_q;
  logic [26:0] coarse;
  logic        coarse_sticky;

  always_comb begin
    unique case (distance2_q[7:3])
      5'd0: begin
        coarse        = {minor2_q, 3'b000};
        coarse_sticky = 1'b0;
      end
      5'd1: begin
        coarse        = {8'd0, minor2_q[23:5]};
        coarse_sticky = |minor2_q[4:0];
      end
      5'd2: begin
        coarse        = {16'd0, minor2_q[23:13]};
        coarse_sticky = |minor2_q[12:0];
      end
      5'd3: begin
        coarse        = {24'd0, minor2_q[23:21]};
        coarse_sticky = |minor2_q[20:0];
      end
      default: begin
        coarse        = '0;
        coarse_sticky = |minor2_q;
      end
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      minor3_q         <= coarse;
      sticky3_q        <= coarse_sticky;
      fine3_q          <= distance2_q[2:0];
      major3_q         <= {major2_q, 3'b000};
      exponent3_q      <= exponent2_q;
      sign3_q          <= sign2_q;
      subtracts3_q     <= subtracts2_q;
      both_negative3_q <= both_negative2_q;
      special3_q       <= special2_q;
    end
  end

  // --- 4: ... and by up to seven ---
  logic [33:0] fine;
  logic [26:0] minor4_q, major4_q;
  logic [7:0]  exponent4_q;
  logic        sign4_q, subtracts4_q, both_negative4_q;
  special_t    special4_q;

  assign fine = {minor3_q, 7'd0} >> fine3_q;

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      minor4_q         <= {fine[33:8], fine[7] || (|fine[6:0]) || sticky3_q};
      major4_q         <= major3_q;
      exponent4_q      <= exponent3_q;
      sign4_q          <= sign3_q;
      subtracts4_q     <= subtracts3_q;
      both_negative4_q <= both_negative3_q;
      special4_q       <= special3_q;
    end
  end

  // --- 5: the sum, never negative ---
  logic [27:0] sum5_q;
  logic [7:0]  exponent5_q;
  logic        sign5_q, both_negative5_q;
  special_t    special5_q;

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      sum5_q           <= subtracts4_q ? {1'b0, major4_q} - {1'b0, minor4_q} : {1'b0, major4_q} + {1'b0, minor4_q};
      exponent5_q      <= exponent4_q;
      sign5_q          <= sign4_q;
      both_negative5_q <= both_negative4_q;
      special5_q       <= special4_q;
    end
  end

  // --- 6: leading zeros below the carry, but no more than the exponent allows (the result is subnormal then) ---
  logic [4:0]  zeros, shift6_q;
  logic [7:0]  most;
  logic [27:0] sum6_q;
  logic [7:0]  exponent6_q;
  logic        sign6_q;
  special_t    special6_q;

  always_comb begin
    zeros = 5'd27;
    for (int unsigned bit_ = 0; bit_ < 27; bit_++) begin
      if (sum5_q[bit_]) zeros = 5'(26 - bit_);
    end
  end
  assign most = exponent5_q - 8'd1;

  always_ff @(posedge clk_i) begin
    if (en_i) begin
      shift6_q    <= {3'd0, zeros} > most ? most[4:0] : zeros;
      sum6_q      <= sum5_q;
      exponent6_q <= exponent5_q;
      // An exact zero is +0 unless both operands are negative.
      sign6_q     <= sum5_q == 28'd0 ? both_negative5_q : sign5_q;
      special6_q  <= special5_q;
    end
  end

  // --- 7: normalised: the leading one at the top, which the exponent stands for, 23 bits, guard, the rest as sticky ---
  logic [26:0] shifted;
  logic [22:0] fraction7_q;
  logic        guard7_q, sticky7_q;
  logic [7:0]  exponent7_q;  // 0 where there is no leading one
  logic        sign7_q, is_beyond;

  assign shifted = sum6_q[26:0] << shift6_q;

  // What is infinite, or will be, or is no number, leaves here as it must come out: nothing is rounded then.
  always_ff @(posedge clk_i) begin
    if (en_i) begin
      if (sum6_q[27]) begin
        fraction7_q <= sum6_q[26:4];
        guard7_q    <= sum6_q[3];
        sticky7_q   <= |sum6_q[2:0];
        exponent7_q <= exponent6_q + 8'd1;
      end else begin
        fraction7_q <= shifted[25:3];
        guard7_q    <= shifted[2];
        sticky7_q   <= |shifted[1:0];
        exponent7_q <= shifted[26] ? exponent6_q - {3'd0, shift6_q} : 8'd0;
      end
      sign7_q <= sign6_q;
      if (is_beyond) begin
        fraction7_q <= {special6_q.is_nan, 22'd0};
        guard7_q    <= 1'b0;
        exponent7_q <= 8'hff;
        sign7_q     <= special6_q.is_inf || special6_q.is_nan ? special6_q.inf_sign && !special6_q.is_nan : sign6_q;
      end
    end
  end

  assign is_beyond = special6_q.is_nan || special6_q.is_inf || (sum6_q[27] && exponent6_q == 8'd254);

  // --- 8: rounded; a carry out of the fraction raises the exponent, up to infinity ---
  logic        round_up;
  logic [30:0] magnitude;
  logic [31:0] sum8_q;

  assign round_up  = guard7_q && (sticky7_q || fraction7_q[0]);
  assign magnitude = {exponent7_q, fraction7_q} + 31'(round_up);

  always_ff @(posedge clk_i) begin
    if (en_i) sum8_q <= flushed({sign7_q, magnitude});
  end

  assign sum_o = sum8_q;

endmodule
