// The output FIFO and what empties it: beats become chunks of host memory, without their padding. A burst is asked for
// when all of it is here, so a write that has begun always ends. A request has ended when the host has confirmed all
// bursts up to its last.
module memory_writer
  import nic_pkg::*;
#(
  parameter int unsigned Lanes      = 8,
  parameter int unsigned FifoDepth  = 256,  // beats, a power of two
  parameter int unsigned BurstBeats = 16   // a power of two
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                drain_i,  // begin no further burst
  output logic                idle_o,   // all bursts that have begun are confirmed

  input  logic                chunk_valid_i,
  output logic                chunk_ready_o,
  input  chunk_t              chunk_i,

  input  logic                s_tvalid_i,
  output logic                s_tready_o,
  input  logic [32*Lanes-1:0] s_tdata_i,
  input  logic                s_tlast_i,

  output logic                command_valid_o,
  input  logic                command_ready_i,
  output logic [63:0]         command_address_o,
  output logic [15:0]         command_bytes_o,
  output logic                m_tvalid_o,
  input  logic                m_tready_i,
  output logic [32*Lanes-1:0] m_tdata_o,
  output logic [4*Lanes-1:0]  m_tkeep_o,
  output logic                m_tlast_o,   // of a burst
  input  logic                written_i,   // a burst is confirmed; in the order they were asked for

  output logic                ended_o      // a request, for a cycle; in the order of their chunks
);

  localparam int unsigned LaneBits      = $clog2(Lanes);
  localparam int unsigned LevelWidth    = $clog2(FifoDepth + 2);
  localparam logic [15:0] BeatElements  = 16'(Lanes);
  localparam int unsigned BurstWidth    = $clog2(BurstBeats + 1);
  localparam int unsigned ConfirmWidth  = 8;  // bursts on their way are fewer than half of what this counts
  localparam int unsigned EndsDepth     = 8;

  // --- In: padding is dropped. Whether a beat is padding is a register: modules far back depend on it ---
  logic [15:0] in_elements, in_left_q, in_left;
  logic        in_valid, in_ready, in_starts_q, is_padding_q, in_moves, fifo_space, chunk_in_ready, chunk_out_ready;

  assign chunk_ready_o = chunk_in_ready && chunk_out_ready;

  stream_queue #(
    .Width(16),
    .Depth(4)
  ) u_in_chunks (
    .clk_i,
    .rst_ni,
    .s_valid_i(chunk_valid_i && chunk_ready_o && chunk_i.beats != '0),
    .s_ready_o(chunk_in_ready),
    .s_data_i (chunk_i.elements),
    .m_valid_o(in_valid),
    .m_ready_i(in_ready),
    .m_data_o (in_elements)
  );

  assign in_left    = in_starts_q ? in_elements : in_left_q;
  assign s_tready_o = in_valid && (fifo_space || is_padding_q);
  assign in_moves   = s_tvalid_i && s_tready_o;
  assign in_ready   = in_moves && s_tlast_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      in_starts_q  <= 1'b1;
      is_padding_q <= 1'b0;  // a chunk begins with an element
    end else if (in_moves) begin
      in_starts_q  <= s_tlast_i;
      is_padding_q <= !s_tlast_i && in_left <= BeatElements;
    end
  end

  always_ff @(posedge clk_i) begin
    if (in_moves) in_left_q <= in_left > BeatElements ? in_left - BeatElements : '0;
  end

  logic [LevelWidth-1:0] unused_level;
  logic                  fifo_push, fifo_valid, fifo_ready;

  assign fifo_push = s_tvalid_i && in_valid && !is_padding_q;

  stream_fifo #(
    .Width(32 * Lanes),
    .Depth(FifoDepth)
  ) u_fifo (
    .clk_i,
    .rst_ni,
    .s_valid_i(fifo_push),
    .s_ready_o(fifo_space),
    .s_data_i (s_tdata_i),
    .m_valid_o(fifo_valid),
    .m_ready_i(fifo_ready),
    .m_data_o (m_tdata_o),
    .level_o  (unused_level)
  );

  // --- Out: bursts ---
  logic                    ends_q, next_valid, next_taken, next_ends;
  logic [63:0]             next_address, burst_address;
  logic [15:0]             next_elements;
  logic                    out_valid_q, out_taken, beat, no_burst, begin_burst, command_space, end_space, ends;
  logic                    last_burst_unused;
  logic [15:0]             burst_elements;
  logic [BurstWidth-1:0]   burst_beats, sending_beats, index_q;
  logic [LaneBits-1:0]     tail;        // elements in the last beat of the burst, 0: all
  logic [LevelWidth-1:0]   spare_q;  // beats in the FIFO that belong to no burst that has begun
  logic                    sending, burst_space, burst_ends;
  logic [ConfirmWidth-1:0] begun_q, confirmed_q, mark, since_mark;
  logic                    mark_valid, mark_taken;

  chunk_bursts #(
    .Lanes     (Lanes),
    .BurstBeats(BurstBeats)
  ) u_next_bursts (
    .clk_i,
    .load_i    (next_taken),
    .address_i (next_address),
    .elements_i(next_elements),
    .next_i    (begin_burst),
    .address_o (burst_address),
    .elements_o(burst_elements),
    .beats_o   (burst_beats),
    .is_last_o (last_burst_unused),
    .is_none_o (no_burst)
  );

  assign beat           = m_tvalid_o && m_tready_i;
  assign begin_burst    = out_valid_q && !no_burst && !drain_i && command_space &&
                          begun_q - confirmed_q < (1 << (ConfirmWidth - 1)) &&
                          burst_space && spare_q >= LevelWidth'(burst_beats);
  assign ends           = out_valid_q && no_burst && (!ends_q || end_space);
  assign out_taken      = ends;
  assign next_taken     = !out_valid_q || out_taken;

  stream_queue #(
    .Width(81),
    .Depth(4)
  ) u_out_chunks (
    .clk_i,
    .rst_ni,
    .s_valid_i(chunk_valid_i && chunk_ready_o),
    .s_ready_o(chunk_out_ready),
    .s_data_i ({chunk_i.address, chunk_i.elements, chunk_i.flag}),
    .m_valid_o(next_valid),
    .m_ready_i(next_taken),
    .m_data_o ({next_address, next_elements, next_ends})
  );

  stream_queue #(
    .Width(80),
    .Depth(4)
  ) u_commands (
    .clk_i,
    .rst_ni,
    .s_valid_i(begin_burst),
    .s_ready_o(command_space),
    .s_data_i ({burst_address, 16'(burst_elements << 2)}),
    .m_valid_o(command_valid_o),
    .m_ready_i(command_ready_i),
    .m_data_o ({command_address_o, command_bytes_o})
  );

  // How many bursts have begun when a request ends; it has ended when so many are confirmed.
  stream_queue #(
    .Width(ConfirmWidth),
    .Depth(EndsDepth)
  ) u_ends (
    .clk_i,
    .rst_ni,
    .s_valid_i(ends && ends_q),
    .s_ready_o(end_space),
    .s_data_i (begun_q),
    .m_valid_o(mark_valid),
    .m_ready_i(mark_taken),
    .m_data_o (mark)
  );

  assign since_mark = confirmed_q - mark;
  assign mark_taken = mark_valid && !since_mark[ConfirmWidth-1];
  assign ended_o    = mark_taken;
  assign idle_o     = begun_q == confirmed_q;

  stream_queue #(
    .Width(BurstWidth + LaneBits),
    .Depth(4)
  ) u_bursts (
    .clk_i,
    .rst_ni,
    .s_valid_i(begin_burst),
    .s_ready_o(burst_space),
    .s_data_i ({burst_beats, burst_elements[LaneBits-1:0]}),
    .m_valid_o(sending),
    .m_ready_i(burst_ends),
    .m_data_o ({sending_beats, tail})
  );

  assign m_tvalid_o = fifo_valid && sending;
  assign m_tlast_o  = index_q == sending_beats - 1'b1;
  assign fifo_ready = m_tready_i && sending;
  assign burst_ends = beat && m_tlast_o;

  always_comb begin
    for (int unsigned lane = 0; lane < Lanes; lane++) begin
      m_tkeep_o[4*lane +: 4] = {4{!m_tlast_o || tail == '0 || LaneBits'(lane) < tail}};
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      out_valid_q  <= 1'b0;
      index_q      <= '0;
      spare_q      <= '0;
      begun_q      <= '0;
      confirmed_q  <= '0;
    end else begin
      if (next_taken) out_valid_q <= next_valid;
      if (begin_burst) begun_q <= begun_q + 1'b1;
      if (beat) index_q <= m_tlast_o ? '0 : index_q + 1'b1;
      spare_q <= spare_q + LevelWidth'(fifo_push && fifo_space) - (begin_burst ? LevelWidth'(burst_beats) : '0);
      if (written_i) confirmed_q <= confirmed_q + 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (next_taken) ends_q <= next_ends;
  end

endmodule
