// Reads the payloads of all ports in step where they are block floating point (blocks of 16 elements in 17 bytes: an
// exponent, then a byte per element). It gives three pairs of elements of every rank a cycle, whether a block ends with
// them or before. So three blocks take eight cycles. Where blocks lie is the same for all: one control, and a window of
// two beats a rank.
//
// The window moves on by a beat when the next pairs begin in its second one. Its beats are asked for as many cycles
// before as they take to come, so the control that the windows see is an old one.
module bfp_reader
  import aggregation_pkg::*;
#(
  parameter int unsigned Ranks       = 8,
  parameter int unsigned ReadLatency = 3  // from `read_o` until the ranks' beats are here
) (
  input  logic                                 clk_i,
  input  logic                                 rst_ni,

  input  logic                                 start_i,  // when ready
  input  logic [8:0]                           words_i,  // of the payload
  output logic                                 ready_o,

  output logic                                 read_o,
  output logic [6:0]                           beat_o,
  input  logic [Ranks-1:0][63:0]               beats_i,  // by rank

  output bfp_step_t                            m_step_o,
  output logic [Ranks-1:0][BfpPairs-1:0][7:0]  m_exponent_o,
  output logic [Ranks-1:0][BfpPairs-1:0][15:0] m_mantissa_o
);

  localparam int unsigned BlockBytes    = 17;
  localparam logic [2:0]  Gap           = 3'd4;  // cycles between payloads, for bfp_writer to end the one before
  localparam logic [2:0]  WindowBeats   = 3'd2;

  typedef struct packed {
    bfp_step_t  pairs;   // that are taken from the window
    logic [2:0] offset;  // of the first, or of the exponent before it, in the window
    logic       moves;   // the window, behind that
  } step_t;

  // --- Control ---
  logic        is_busy_q, ends, has_next, is_on;
  logic [2:0]  gap_q, pair_q, offset_q;  // the first pair's place in its block
  logic [3:0]  offset_next;
  logic [10:0] left_q;                   // bytes of blocks that have not begun
  logic [6:0]  beat_q;
  step_t       step, step_a, step_b;

  assign has_next = left_q >= 11'(BlockBytes);

  always_comb begin
    is_on = is_busy_q && gap_q == '0 && (has_next || pair_q != '0);
    step  = '0;
    unique case (pair_q)
      3'd0:    step.pairs.old = 2'd0;
      3'd6:    step.pairs.old = 2'd2;
      3'd7:    step.pairs.old = 2'd1;
      default: step.pairs.old = 2'd3;
    endcase
    step.pairs.is_valid  = is_on;
    step.pairs.begins    = step.pairs.old != 2'd3 && has_next;
    step.pairs.completes = pair_q >= 3'd5;
    step.pairs.is_last   = step.pairs.completes && !has_next;
    step.offset          = offset_q;
    offset_next          = 4'(offset_q) + 4'd6 + 4'(step.pairs.begins);
    step.moves           = is_busy_q && (gap_q == '0 ? offset_next[3] : gap_q <= WindowBeats);
  end

  // A payload without a block takes no more than the gap.
  assign ends    = is_busy_q && gap_q == '0 && (!is_on || step.pairs.is_last);
  assign ready_o = !is_busy_q || ends;
  assign read_o  = step.moves;
  assign beat_o  = beat_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_busy_q <= 1'b0;
    end else begin
      is_busy_q <= start_i || (is_busy_q && !ends);
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      gap_q    <= Gap;
      pair_q   <= '0;
      offset_q <= '0;
      left_q   <= {words_i, 2'b00};
      beat_q   <= '0;
    end else begin
      if (gap_q != '0) gap_q <= gap_q - 3'd1;
      if (step.moves) beat_q <= beat_q + 7'd1;
      if (is_on) begin
        pair_q   <= pair_q + 3'(BfpPairs);
        offset_q <= offset_next[2:0];
        if (step.pairs.begins) left_q <= left_q - 11'(BlockBytes);
      end
    end
  end

  // --- The windows see it when their beats come; first eight bytes are selected, then pairs and exponents ---
  delay_line #(
    .Width ($bits(step_t)),
    .Cycles(ReadLatency)
  ) u_steps (
    .clk_i,
    .data_i(step),
    .data_o(step_a)
  );

  logic [BfpPairs-1:0] is_new;   // the pair is of the block that begins
  logic                has_new;
  bfp_step_t           step_c_q;

  always_ff @(posedge clk_i) begin
    step_b   <= step_a;
    step_c_q <= step_b.pairs;
  end

  assign has_new  = step_b.pairs.begins;
  assign m_step_o = step_c_q;

  always_comb begin
    for (int unsigned pair = 0; pair < BfpPairs; pair++) is_new[pair] = has_new && 2'(pair) >= step_b.pairs.old;
  end

  for (genvar rank = 0; rank < Ranks; rank++) begin : gen_rank
    logic [127:0]              window_q;
    logic [7:0][7:0]           bytes_q;
    logic [7:0]                exponent_q, exponent_new;

    always_ff @(posedge clk_i) begin
      if (step_a.moves) window_q <= {beats_i[rank], window_q[127:64]};
      bytes_q <= window_q[{1'b0, step_a.offset[2:1], 4'd0} +: 64];
    end

    always_comb begin
      unique case (step_b.pairs.old)
        2'd0:    exponent_new = bytes_q[{2'd0, step_b.offset[0]}];
        2'd1:    exponent_new = bytes_q[{2'd1, step_b.offset[0]}];
        default: exponent_new = bytes_q[{2'd2, step_b.offset[0]}];
      endcase
    end

    for (genvar pair = 0; pair < BfpPairs; pair++) begin : gen_pair
      logic [7:0]  exponent;
      logic [15:0] mantissa;

      assign exponent = is_new[pair] ? exponent_new : exponent_q;

      always_comb begin
        mantissa = bytes_q[2*pair +: 2];
        if (step_b.offset[0] != is_new[pair]) mantissa = bytes_q[2*pair+1 +: 2];
        if (step_b.offset[0] && is_new[pair]) mantissa = bytes_q[2*pair+2 +: 2];
      end

      always_ff @(posedge clk_i) begin
        m_exponent_o[rank][pair] <= exponent;
        m_mantissa_o[rank][pair] <= mantissa;
      end
    end

    always_ff @(posedge clk_i) begin
      if (has_new) exponent_q <= exponent_new;
    end
  end

  logic unused;
  assign unused = ^{step_b.moves, step_b.offset[2:1]};

endmodule
