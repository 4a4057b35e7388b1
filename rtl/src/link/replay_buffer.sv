// Frames that were not acknowledged yet. Beats are gathered into frames of up to `PayloadBeats`; a whole frame can be
// read any number of times, until `release_to_i` passes it. A frame is known by its number; its place is the number
// modulo `Slots`.
module replay_buffer #(
  parameter int unsigned DataWidth    = 256,
  parameter int unsigned PayloadBeats = 44,
  parameter int unsigned Slots        = 16,  // a power of two
  localparam int unsigned IndexWidth = $clog2(PayloadBeats),
  localparam int unsigned SlotWidth  = $clog2(Slots)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,

  input  logic                  s_tvalid_i,
  output logic                  s_tready_o,
  input  logic [DataWidth-1:0]  s_tdata_i,
  input  logic                  s_tlast_i,   // ends a frame and a chunk

  output logic                  gathers_none_o,
  output logic [31:0]           head_o,      // number of the first frame that is not whole
  output logic [31:0]           base_o,      // number of the oldest frame kept
  input  logic                  release_i,
  input  logic [31:0]           release_to_i,

  input  logic [SlotWidth-1:0]  slot_i,      // of the frame that is looked at
  output logic [7:0]            beats_o,
  output logic                  ends_chunk_o,
  output logic [31:0]           crc_o,       // over its beats, not inverted

  input  logic                  read_i,
  input  logic [IndexWidth-1:0] read_index_i,
  output logic [DataWidth-1:0]  read_data_o  // a cycle after read_i
);

  typedef struct packed {
    logic [7:0]  beats;
    logic        ends_chunk;
    logic [31:0] crc;
  } frame_t;

  logic [DataWidth-1:0]  memory [Slots * (1 << IndexWidth)];
  frame_t                frames [Slots];
  logic [31:0]           head_q, base_q, crc_q, crc_next;
  logic [IndexWidth-1:0] index_q;
  logic                  push, ends_frame;

  crc32 #(
    .Width(DataWidth)
  ) u_crc (
    .crc_i (crc_q),
    .data_i(s_tdata_i),
    .crc_o (crc_next)
  );

  assign s_tready_o = head_q - base_q < 32'(Slots);
  assign push       = s_tvalid_i && s_tready_o;
  assign ends_frame = push && (s_tlast_i || index_q == IndexWidth'(PayloadBeats - 1));

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      head_q  <= '0;
      base_q  <= '0;
      index_q <= '0;
      crc_q   <= '1;
    end else begin
      if (ends_frame) begin
        head_q  <= head_q + 1'b1;
        index_q <= '0;
        crc_q   <= '1;
      end else if (push) begin
        index_q <= index_q + 1'b1;
        crc_q   <= crc_next;
      end
      if (release_i) base_q <= release_to_i;
    end
  end

  always_ff @(posedge clk_i) begin
    if (push) memory[{head_q[SlotWidth-1:0], index_q}] <= s_tdata_i;
    if (ends_frame) frames[head_q[SlotWidth-1:0]] <= '{8'(index_q) + 8'd1, s_tlast_i, crc_next};
    if (read_i) read_data_o <= memory[{slot_i, read_index_i}];
  end

  assign gathers_none_o = index_q == '0;
  assign head_o       = head_q;
  assign base_o       = base_q;
  assign beats_o      = frames[slot_i].beats;
  assign ends_chunk_o = frames[slot_i].ends_chunk;
  assign crc_o        = frames[slot_i].crc;

endmodule
