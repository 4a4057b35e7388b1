// Frames that were not acknowledged yet. Beats are gathered into frames of up to `PayloadBeats`; a whole frame can be
// read any number of times, until `release_to_i` passes it. A frame is known by its number; its place is the number
// modulo `Slots`. The last beat of a frame is written in the cycle before `head_o` passes it: the checksum takes two.
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
  output logic [SlotWidth:0]    head_o,      // number of the first frame that is not whole: as much as places need
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
  logic [31:0]           base_q;
  logic [SlotWidth:0]    head_q, write_q, taken;  // write_q: number of the frame that is gathered
  logic [IndexWidth-1:0] index_q;
  logic                  push, ends_frame, is_full_q;

  assign taken      = write_q - base_q[SlotWidth:0];
  assign s_tready_o = !is_full_q;
  assign push       = s_tvalid_i && s_tready_o;
  assign ends_frame = push && (s_tlast_i || index_q == IndexWidth'(PayloadBeats - 1));

  // A CRC is linear: the shares of a beat's halves go into registers. They are added to that of the beats before a cycle
  // later.
  localparam int unsigned Half = DataWidth / 2;

  logic [31:0] crc_low, crc_low_q, crc_high, crc_high_q, crc_before, crc_q, crc_next;
  logic        pushed_q, ended_q, ended_chunk_q;
  logic [7:0]  beats_q;

  crc32 #(
    .Width(DataWidth)
  ) u_crc_low (
    .crc_i ('0),
    .data_i({{Half{1'b0}}, s_tdata_i[Half-1:0]}),
    .crc_o (crc_low)
  );

  crc32 #(
    .Width(Half)
  ) u_crc_high (
    .crc_i ('0),
    .data_i(s_tdata_i[DataWidth-1:Half]),
    .crc_o (crc_high)
  );

  crc32 #(
    .Width(DataWidth)
  ) u_crc_before (
    .crc_i (crc_q),
    .data_i('0),
    .crc_o (crc_before)
  );

  assign crc_next = crc_before ^ crc_low_q ^ crc_high_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_full_q <= 1'b0;
      write_q   <= '0;
      index_q   <= '0;
      pushed_q  <= 1'b0;
      ended_q   <= 1'b0;
      crc_q     <= '1;
      head_q    <= '0;
      base_q    <= '0;
    end else begin
      is_full_q <= taken == (SlotWidth + 1)'(ends_frame ? Slots - 1 : Slots);  // a released place is seen a cycle late
      if (ends_frame) begin
        write_q <= write_q + 1'b1;
        index_q <= '0;
      end else if (push) begin
        index_q <= index_q + 1'b1;
      end
      pushed_q <= push;
      ended_q  <= ends_frame;
      if (pushed_q) crc_q <= ended_q ? '1 : crc_next;
      if (ended_q) head_q <= head_q + 1'b1;
      if (release_i) base_q <= release_to_i;
    end
  end

  always_ff @(posedge clk_i) begin
    if (push) memory[{write_q[SlotWidth-1:0], index_q}] <= s_tdata_i;
    crc_low_q     <= crc_low;
    crc_high_q    <= crc_high;
    beats_q       <= 8'(index_q) + 8'd1;
    ended_chunk_q <= s_tlast_i;
    if (ended_q) frames[head_q[SlotWidth-1:0]] <= '{beats_q, ended_chunk_q, crc_next};
    if (read_i) read_data_o <= memory[{slot_i, read_index_i}];
  end

  assign gathers_none_o = index_q == '0 && !ended_q;
  assign head_o         = head_q;
  assign base_o         = base_q;
  assign beats_o        = frames[slot_i].beats;
  assign ends_chunk_o   = frames[slot_i].ends_chunk;
  assign crc_o          = frames[slot_i].crc;

endmodule
