// The input FIFO and what fills it: chunks of host memory, of at least one element, become beats, padded with zeros to
// whole blocks. It asks in bursts for what it has room for, so data never have to wait at the bus.
module memory_reader
  import nic_pkg::*;
#(
  parameter int unsigned Lanes      = 8,
  parameter int unsigned FifoDepth  = 256,  // beats, a power of two
  parameter int unsigned BurstBeats = 16   // a power of two
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                drain_i,  // ask for nothing more, drop what still comes
  output logic                idle_o,   // everything that was asked for has come

  input  logic                chunk_valid_i,
  output logic                chunk_ready_o,
  input  chunk_t              chunk_i,

  output logic                command_valid_o,
  input  logic                command_ready_i,
  output logic [63:0]         command_address_o,
  output logic [15:0]         command_bytes_o,

  input  logic                s_tvalid_i,
  output logic                s_tready_o,
  input  logic [32*Lanes-1:0] s_tdata_i,

  output logic                m_tvalid_o,
  input  logic                m_tready_i,
  output logic [32*Lanes-1:0] m_tdata_o,
  output logic                m_tfolds_o,
  output logic                m_tlast_o
);

  localparam int unsigned FreeWidth  = $clog2(FifoDepth + 1);
  localparam int unsigned BurstWidth = $clog2(BurstBeats + 1);
  localparam logic [15:0] BeatElements  = 16'(Lanes);

  // --- Asking: one burst after the other ---
  logic                 asking_q, has_room_q, data_ready, asked, is_last_burst, no_burst_unused, fifo_valid, fifo_ready;
  logic [FreeWidth-1:0] free_q, due_q, asked_beats;  // due: beats asked for that have not come
  logic [BurstWidth-1:0] burst_beats;
  logic [15:0]          burst_elements;
  logic                 ask_space, next_valid, next_taken;
  logic [63:0]          next_address;
  logic [15:0]          next_elements;

  stream_queue #(
    .Width(80),
    .Depth(4)
  ) u_asks (
    .clk_i,
    .rst_ni,
    .s_valid_i(chunk_valid_i && chunk_ready_o),
    .s_ready_o(ask_space),
    .s_data_i ({chunk_i.address, chunk_i.elements}),
    .m_valid_o(next_valid),
    .m_ready_i(next_taken),
    .m_data_o ({next_address, next_elements})
  );

  chunk_bursts #(
    .Lanes     (Lanes),
    .BurstBeats(BurstBeats)
  ) u_bursts (
    .clk_i,
    .load_i    (next_taken),
    .address_i (next_address),
    .elements_i(next_elements),
    .next_i    (asked),
    .address_o (command_address_o),
    .elements_o(burst_elements),
    .beats_o   (burst_beats),
    .is_last_o (is_last_burst),
    .is_none_o (no_burst_unused)
  );

  assign chunk_ready_o     = ask_space && data_ready;
  assign next_taken        = !asking_q || (asked && is_last_burst);
  assign command_valid_o   = asking_q && !drain_i && has_room_q;
  assign command_bytes_o   = burst_elements << 2;
  assign asked             = command_valid_o && command_ready_i;
  assign asked_beats       = asked ? FreeWidth'(burst_beats) : '0;
  assign idle_o            = due_q == '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      asking_q   <= 1'b0;
      has_room_q <= 1'b0;
      free_q   <= FreeWidth'(FifoDepth);
      due_q    <= '0;
    end else begin
      if (next_taken) asking_q <= next_valid;
      has_room_q <= !asked && !next_taken && free_q >= FreeWidth'(burst_beats);  // of the next burst, a cycle ago
      free_q <= free_q - asked_beats + FreeWidth'(fifo_valid && fifo_ready);
      due_q  <= due_q + asked_beats - FreeWidth'(s_tvalid_i && s_tready_o);
    end
  end

  // --- What comes ---
  logic                fifo_space;
  logic [$clog2(FifoDepth+2)-1:0] unused_level;
  logic [32*Lanes-1:0] fifo_data;

  assign s_tready_o = fifo_space || drain_i;

  stream_fifo #(
    .Width(32 * Lanes),
    .Depth(FifoDepth)
  ) u_fifo (
    .clk_i,
    .rst_ni,
    .s_valid_i(s_tvalid_i && !drain_i),
    .s_ready_o(fifo_space),
    .s_data_i (s_tdata_i),
    .m_valid_o(fifo_valid),
    .m_ready_i(fifo_ready),
    .m_data_o (fifo_data),
    .level_o  (unused_level)
  );

  // --- Beats of a chunk ---
  typedef struct packed {
    logic [15:0] elements;
    logic [15:0] last;      // beat
    logic        folds;
  } part_t;

  part_t       part;
  logic        part_valid, part_ends;
  logic [15:0] index_q;
  logic [15:0] elements_left_q, left;
  logic        starts_q, is_padding_q, is_last, out_ready, moves;

  stream_queue #(
    .Width($bits(part_t)),
    .Depth(4)
  ) u_parts (
    .clk_i,
    .rst_ni,
    .s_valid_i(chunk_valid_i && chunk_ready_o),
    .s_ready_o(data_ready),
    .s_data_i ({chunk_i.elements, chunk_i.beats - 16'd1, chunk_i.flag}),
    .m_valid_o(part_valid),
    .m_ready_i(part_ends),
    .m_data_o (part)
  );

  assign left       = starts_q ? part.elements : elements_left_q;
  assign is_last    = index_q == part.last;
  assign out_ready  = m_tready_i || !m_tvalid_o;
  assign moves      = part_valid && (fifo_valid || is_padding_q) && out_ready;
  assign fifo_ready = part_valid && !is_padding_q && out_ready;
  assign part_ends  = moves && is_last;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q         <= '0;
      elements_left_q <= '0;
      starts_q        <= 1'b1;
      is_padding_q    <= 1'b0;  // a chunk begins with an element
      m_tvalid_o      <= 1'b0;
    end else begin
      if (out_ready) m_tvalid_o <= moves;
      if (moves) begin
        index_q         <= is_last ? '0 : index_q + 16'd1;
        elements_left_q <= left > BeatElements ? left - BeatElements : '0;
        starts_q        <= is_last;
        is_padding_q    <= !is_last && left <= BeatElements;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (moves) begin
      for (int unsigned lane = 0; lane < Lanes; lane++) begin
        m_tdata_o[32*lane +: 32] <= 16'(lane) < left ? fifo_data[32*lane +: 32] : 32'd0;
      end
      m_tfolds_o <= part.folds;
      m_tlast_o  <= is_last;
    end
  end

endmodule
