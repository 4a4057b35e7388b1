// Sends the switch's own messages to a worker (core/wire/PROTOCOL.md, notices): an Ethernet frame of 60 bytes, to the
// address that a frame came from. One at a time: while one waits to leave, others are not told, for the worker will ask
// again.
module notice_sender
  import switch_pkg::*;
  import aggregation_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        valid_i,
  input  notice_t     notice_i,
  input  logic [47:0] to_i,

  output logic        m_valid_o,
  input  logic        m_ready_i,
  output beat_t       m_beat_o
);

  localparam logic [15:0] EtherType     = 16'h88b5;
  localparam logic [15:0] Magic         = 16'h4e46;
  localparam logic [3:0]  Version       = 4'd1;
  localparam int unsigned Beats         = 8;

  logic        is_busy_q;
  logic [2:0]  beat_q;
  notice_t     notice_q;
  logic [47:0] to_q;
  logic [63:0] bytes;  // of a beat, the first the highest

  always_comb begin
    unique case (beat_q)
      3'd0:    bytes = {to_q, SwitchAddress[47:32]};
      3'd1:    bytes = {SwitchAddress[31:0], EtherType, Magic};
      3'd2:    bytes = {Version, 2'b00, notice_q.kind, 8'd0, notice_q.job, notice_q.epoch, notice_q.rank};
      3'd3:    bytes = {9'd0, notice_q.packet, notice_q.message, 16'd0};
      default: bytes = '0;
    endcase
  end

  for (genvar i = 0; i < 8; i++) begin : gen_byte
    assign m_beat_o.data[8*i +: 8] = bytes[56-8*i +: 8];
  end
  assign m_beat_o.error = 1'b0;
  assign m_beat_o.last  = beat_q == 3'(Beats - 1);
  assign m_beat_o.extra = m_beat_o.last ? 3'd3 : 3'd7;
  assign m_valid_o      = is_busy_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_busy_q <= 1'b0;
      beat_q    <= '0;
    end else if (!is_busy_q) begin
      is_busy_q <= valid_i;
    end else if (m_ready_i) begin
      beat_q <= beat_q + 3'd1;
      if (m_beat_o.last) is_busy_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!is_busy_q) begin
      notice_q <= notice_i;
      to_q     <= to_i;
    end
  end

endmodule
