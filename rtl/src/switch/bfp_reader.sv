// Reads the payloads of all ports in step where they are block floating point (blocks of 16 elements in 17 bytes: an
// exponent, then a byte an element), and decodes four elements of every rank a cycle. Where blocks lie is the same for
// all: one control, and a window of two beats a rank.
//
// The window moves on by a beat when the next elements begin in its second one. Its beats are asked for as many cycles
// before as they take to come, so the control that the windows see is an old one.
module bfp_reader #(
  parameter int unsigned Ranks       = 8,
  parameter int unsigned ReadLatency = 3,  // from `read_o` until the ranks' beats are here
  localparam int unsigned Lanes = 4
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,

  input  logic                           start_i,  // when ready
  input  logic [8:0]                     words_i,  // of the payload
  output logic                           ready_o,

  output logic                           read_o,
  output logic [6:0]                     beat_o,
  input  logic [Ranks-1:0][63:0]         beats_i,  // by rank

  output logic                           m_valid_o,
  output logic                           m_last_o,  // of the payload
  output logic [Ranks-1:0][32*Lanes-1:0] m_data_o
);

  localparam int unsigned BlockBytes    = 17;
  localparam int unsigned GroupsOfBlock = 4;
  localparam int unsigned DecodeLatency = 2;

  typedef struct packed {
    logic       is_valid;   // elements are taken from the window
    logic       is_first;   // ... behind their block's exponent
    logic       is_last;
    logic [2:0] offset;     // of the exponent, or of the elements, in the window
    logic       moves;      // the window, behind that
  } step_t;

  // --- Control ---
  logic        is_busy_q, ends;
  logic [1:0]  primes_q, group_q;  // beats that the window still lacks
  logic [2:0]  offset_q;
  logic [3:0]  offset_next;
  logic [10:0] left_q;             // bytes from this block on
  logic [6:0]  beat_q;
  step_t       step, step_now;

  always_comb begin
    step          = '0;
    step.is_valid = is_busy_q && primes_q == '0;
    step.is_first = group_q == '0;
    step.is_last  = group_q == 2'(GroupsOfBlock - 1) && left_q < 11'(2 * BlockBytes);
    step.offset   = offset_q;
    offset_next   = 4'(offset_q) + (step.is_first ? 4'd5 : 4'd4);
    step.moves    = is_busy_q && (primes_q != '0 || offset_next[3]);
  end

  assign ends    = step.is_valid && step.is_last;
  assign ready_o = !is_busy_q || ends;
  assign read_o  = step.moves;
  assign beat_o  = beat_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_busy_q <= 1'b0;
    end else if (start_i) begin
      is_busy_q <= {words_i, 2'b00} >= 11'(BlockBytes);  // else there is no block
    end else if (ends) begin
      is_busy_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      primes_q <= 2'd2;
      group_q  <= '0;
      offset_q <= '0;
      left_q   <= {words_i, 2'b00};
      beat_q   <= '0;
    end else begin
      if (primes_q != '0) primes_q <= primes_q - 2'd1;
      if (step.moves) beat_q <= beat_q + 7'd1;
      if (step.is_valid) begin
        group_q  <= group_q + 2'd1;
        offset_q <= offset_next[2:0];
        if (group_q == 2'(GroupsOfBlock - 1)) left_q <= left_q - 11'(BlockBytes);
      end
    end
  end

  // --- The windows see it when their beats come ---
  delay_line #(
    .Width ($bits(step_t)),
    .Cycles(ReadLatency)
  ) u_steps (
    .clk_i,
    .data_i(step),
    .data_o(step_now)
  );

  for (genvar rank = 0; rank < Ranks; rank++) begin : gen_rank
    logic [127:0] window_q;
    logic [39:0]  bytes;
    logic [31:0]  elements;
    logic [7:0]   exponent_q, exponent;
    logic         unused_ready, unused_valid, unused_user, unused_malformed;

    assign bytes    = window_q[{1'b0, step_now.offset, 3'b000} +: 40];
    assign exponent = step_now.is_first ? bytes[7:0] : exponent_q;
    assign elements = step_now.is_first ? bytes[39:8] : bytes[31:0];

    always_ff @(posedge clk_i) begin
      if (step_now.moves) window_q <= {beats_i[rank], window_q[127:64]};
      exponent_q <= exponent;
    end

    bfp_decoder #(
      .Lanes   (Lanes),
      .Block   (16),
      .Mantissa(7)
    ) u_decoder (
      .clk_i,
      .rst_ni,
      .s_tvalid_i  (1'b1),
      .s_tready_o  (unused_ready),
      .s_exponent_i(exponent),
      .s_mantissa_i(elements),
      .s_tuser_i   (1'b0),
      .m_tvalid_o  (unused_valid),
      .m_tready_i  (1'b1),
      .m_tdata_o   (m_data_o[rank]),
      .m_tuser_o   (unused_user),
      .malformed_o (unused_malformed)  // such a frame has not come as far as this
    );
  end

  delay_line #(
    .Width (2),
    .Cycles(DecodeLatency)
  ) u_valid (
    .clk_i,
    .data_i({step_now.is_valid, step_now.is_last}),
    .data_o({m_valid_o, m_last_o})
  );

endmodule
