// Encodes sums as block floating point (blocks of 16, mantissas of 7 bits), three pairs of elements a cycle as bfp_reader
// takes them; bit for bit what bfp_encoder makes of numbers that are not subnormal.
//
// Of a number at most its eight highest bits are in a mantissa before it is rounded: the others are one bit from the
// first stage on. A block begins at most three cycles before it is complete, so all wait for three cycles: the newest
// block that was complete then is the one that began, or that had begun before.
module bfp_sum_encoder
  import aggregation_pkg::*;
(
  input  logic                        clk_i,
  input  logic                        rst_ni,

  input  bfp_step_t                   s_step_i,
  input  logic [2*BfpPairs-1:0][31:0] s_data_i,

  output bfp_step_t                   m_step_o,
  output logic [7:0]                  m_exponent_o,  // of the block that begins
  output logic [2*BfpPairs-1:0][7:0]  m_mantissa_o   // zero without one
);

  localparam int unsigned Lanes    = 2 * BfpPairs;
  localparam int unsigned Held     = 7;              // the stage from which numbers are encoded
  localparam int unsigned Latency  = Held + 3;
  localparam logic [7:0]  Smallest = 8'd7;
  localparam logic [6:0]  Largest  = '1;

  typedef struct packed {
    logic       is_negative;
    logic [7:0] exponent;
    logic [6:0] fraction;
    logic       rest;  // a bit of those below is set
  } number_t;

  function automatic logic [7:0] larger(logic [7:0] a, logic [7:0] b);
    return a > b ? a : b;
  endfunction

  bfp_step_t [Latency:1]         step_q;
  number_t [Held:1][Lanes-1:0]   numbers_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      step_q <= '0;
    end else begin
      step_q <= {step_q[Latency-1:1], s_step_i};
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned lane = 0; lane < Lanes; lane++) begin
      numbers_q[1][lane] <= {s_data_i[lane][31:16], s_data_i[lane][15:0] != '0};
    end
    // Flip-flops that are reset are not made shift registers of LUTs.
    for (int unsigned stage = 2; stage <= Held; stage++) begin
      numbers_q[stage] <= step_q[stage-1].is_valid ? numbers_q[stage-1] : '0;
    end
  end

  // --- 1 to 4: the largest exponent of each pair; of pairs from the first on, and up to the last; of blocks ---
  logic [BfpPairs-1:0][7:0] of_pair1_q;
  logic [7:0]               of_first2_q, of_two2_q, of_last_two2_q, of_last2_q;  // pairs
  logic [7:0]               of_old3_q, of_new3_q, of_begun_q, of_whole_q, of_old, of_three;

  assign of_three = larger(of_two2_q, of_last2_q);
  assign of_old   = larger(of_begun_q, of_old3_q);

  always_ff @(posedge clk_i) begin
    for (int unsigned pair = 0; pair < BfpPairs; pair++) begin
      of_pair1_q[pair] <= larger(s_data_i[2*pair][30:23], s_data_i[2*pair+1][30:23]);
    end

    of_first2_q    <= of_pair1_q[0];
    of_two2_q      <= larger(of_pair1_q[0], of_pair1_q[1]);
    of_last_two2_q <= larger(of_pair1_q[1], of_pair1_q[2]);
    of_last2_q     <= of_pair1_q[2];

    unique case (step_q[2].old)
      2'd0:    of_old3_q <= '0;
      2'd1:    of_old3_q <= of_first2_q;
      2'd2:    of_old3_q <= of_two2_q;
      default: of_old3_q <= of_three;
    endcase
    unique case (step_q[2].old)
      2'd0:    of_new3_q <= of_three;
      2'd1:    of_new3_q <= of_last_two2_q;
      default: of_new3_q <= of_last2_q;
    endcase

    if (step_q[3].is_valid) begin
      of_begun_q <= step_q[3].begins ? of_new3_q : of_old;
      if (step_q[3].completes) of_whole_q <= of_old;
    end
  end

  // --- 8: how far numbers are below their block's exponent ---
  bfp_step_t  now;
  logic       unused_now;
  logic [7:0] exponent_old_q, exponent8_q, exponent9_q, exponent10_q;

  assign now        = step_q[Held];
  assign unused_now = ^now;

  always_ff @(posedge clk_i) begin
    if (now.is_valid && now.begins) exponent_old_q <= of_whole_q;
    exponent8_q  <= of_whole_q;
    exponent9_q  <= exponent8_q < Smallest ? '0 : exponent8_q;
    exponent10_q <= exponent9_q;
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    localparam logic [1:0] Pair = 2'(lane / 2);

    number_t    number;
    logic       is_new, is_there, is_none8_q, is_none9_q, sign8_q, sign9_q, rest8_q, rest9_q, is_far;
    logic [7:0] exponent, distance8_q, significand8_q, window, window9_q, lost, mantissa10_q;
    logic       up;
    logic [6:0] whole;

    assign number   = numbers_q[Held][lane];
    assign is_new   = Pair >= now.old;
    assign is_there = !is_new || now.begins;
    assign exponent = is_new ? of_whole_q : exponent_old_q;

    always_ff @(posedge clk_i) begin
      distance8_q    <= exponent - number.exponent;
      is_none8_q     <= !is_there || exponent == '1 || exponent < Smallest;
      significand8_q <= {number.exponent != '0, number.fraction};
      rest8_q        <= number.rest;
      sign8_q        <= number.is_negative;
    end

    // --- 9: shifted by that, with a bit for rounding; 10: rounded, and given its sign ---
    assign is_far         = distance8_q[7:3] != '0;
    assign {window, lost} = {significand8_q, 8'd0} >> distance8_q[2:0];

    always_ff @(posedge clk_i) begin
      window9_q  <= is_far ? '0 : window;
      rest9_q    <= rest8_q || lost != '0;
      sign9_q    <= sign8_q;
      is_none9_q <= is_none8_q;
    end

    assign whole = window9_q[7:1];
    assign up    = window9_q[0] && (rest9_q || whole[0]) && whole != Largest;

    // -(whole + up), where it is negative.
    always_ff @(posedge clk_i) begin
      mantissa10_q <= ({1'b0, whole} ^ {8{sign9_q}}) + 8'(up ^ sign9_q);
      if (is_none9_q) mantissa10_q <= '0;
    end

    assign m_mantissa_o[lane] = mantissa10_q;
  end

  assign m_step_o     = step_q[Latency];
  assign m_exponent_o = exponent10_q;

endmodule
