// Pause frames (IEEE 802.3, annex 31B) to the neighbour that sends into a port. It sends a long pause once a queue of
// its frames is more than half full, again while it remains so, and ends the pause when all are nearly empty.
module pause_generator
  import switch_pkg::*;
#(
  parameter int unsigned RefreshBits = 18  // again after so many cycles: 1.3 ms at 200 MHz, of a pause of 3.4
) (
  input  logic  clk_i,
  input  logic  rst_ni,
  input  logic  enable_i,
  input  logic  is_filling_i,
  input  logic  is_empty_i,
  output logic  m_valid_o,
  input  logic  m_ready_i,
  output beat_t m_beat_o
);

  localparam logic [47:0] PauseAddress = 48'h0180c2000001;
  localparam logic [31:0] MacControl   = 32'h8808_0001;  // type and opcode
  localparam logic [2:0]  LastBeat     = 3'd7;           // of 60 bytes

  logic                   is_paused_q, ends_q, sends_q, starts;
  logic [2:0]             index_q;
  logic [RefreshBits-1:0] age_q;

  assign starts = is_paused_q ? (is_empty_i || !enable_i || &age_q) : (is_filling_i && enable_i);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_paused_q <= 1'b0;
      ends_q      <= 1'b0;
      sends_q     <= 1'b0;
      index_q     <= '0;
      age_q       <= '0;
    end else if (sends_q) begin
      age_q <= '0;
      if (m_ready_i) begin
        index_q <= index_q + 1'b1;
        sends_q <= index_q != LastBeat;
      end
    end else begin
      age_q   <= age_q + 1'b1;
      sends_q <= starts;
      if (starts) begin
        ends_q      <= is_paused_q && (is_empty_i || !enable_i);
        is_paused_q <= !(is_paused_q && (is_empty_i || !enable_i));
      end
    end
  end

  // The frame, its first byte in the highest place; then as it lies in beats.
  logic [191:0] frame;
  logic [63:0]  number;

  assign frame     = {PauseAddress, SwitchAddress, MacControl, ends_q ? 16'd0 : 16'hffff, 48'd0};
  assign m_valid_o = sends_q;

  always_comb begin
    number = index_q == 3'd0 ? frame[191:128] : index_q == 3'd1 ? frame[127:64] : index_q == 3'd2 ? frame[63:0] : '0;
    m_beat_o = '{error: 1'b0, last: index_q == LastBeat, extra: 3'd3, data: lying_of(number)};
  end

endmodule
