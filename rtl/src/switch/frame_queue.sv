// The frames of one port that leave at one other: a FIFO that takes a frame whole, or not at all. Whether it does is
// decided at the first beat, for the longest frame there is; so a frame may be on its way out while it comes in.
module frame_queue
  import switch_pkg::*;
#(
  parameter int unsigned Beats   = 1024,          // a power of two
  parameter int unsigned Longest = FrameBeatsMax,  // beats of a frame
  parameter int unsigned Width   = $bits(beat_t)
) (
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic             s_valid_i,
  input  logic             s_first_i,    // of the frame
  input  logic [Width-1:0] s_beat_i,
  output logic             dropped_o,    // with a first beat: no room for this frame

  output logic             m_valid_o,
  input  logic             m_ready_i,
  output logic [Width-1:0] m_beat_o,

  output logic             is_filling_o, // more than half full
  output logic             is_empty_o    // less than a quarter
);

  localparam int unsigned PointerWidth = $clog2(Beats);

  logic [Width-1:0]      memory [Beats];
  logic [PointerWidth:0] write_q, read_q, level;
  logic                  has_room_q, admits_q, push, pull, out_valid_q;
  logic [Width-1:0]      out_q;

  assign level        = write_q - read_q;
  assign push         = s_valid_i && (s_first_i ? has_room_q : admits_q);
  assign pull         = write_q != read_q && (!out_valid_q || m_ready_i);
  assign dropped_o    = s_valid_i && s_first_i && !has_room_q;
  assign m_valid_o    = out_valid_q;
  assign m_beat_o     = out_q;
  // A frame may fill the queue to its last beat: then only the highest bit is set.
  assign is_filling_o = level[PointerWidth:PointerWidth-1] != '0;
  assign is_empty_o   = level[PointerWidth:PointerWidth-2] == '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q     <= '0;
      read_q      <= '0;
      has_room_q  <= 1'b0;
      admits_q    <= 1'b0;
      out_valid_q <= 1'b0;
    end else begin
      if (push) write_q <= write_q + 1'b1;
      if (pull) read_q <= read_q + 1'b1;
      if (s_valid_i && s_first_i) admits_q <= has_room_q;
      // A cycle old when it is used: one beat may have come since.
      has_room_q  <= level < (PointerWidth + 1)'(Beats - Longest);
      out_valid_q <= pull || (out_valid_q && !m_ready_i);
    end
  end

  always_ff @(posedge clk_i) begin
    if (push) memory[write_q[PointerWidth-1:0]] <= s_beat_i;
    if (pull) out_q <= memory[read_q[PointerWidth-1:0]];
  end

endmodule
