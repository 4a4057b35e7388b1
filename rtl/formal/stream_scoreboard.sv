// Properties of every stream module: order, no loss, no extra beats, and a stable output while the receiver is not
// ready. Any one beat is followed through the module under proof, and represents all beats.
module stream_scoreboard (
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic       in_i,           // a beat enters
  input  logic [7:0] in_data_i,
  input  logic       m_valid_i,
  input  logic       m_ready_i,
  input  logic [7:0] m_data_i,
  input  logic [7:0] follow_i,       // the number of the beat to follow; constant

  output logic [7:0] in_o, out_o,    // beats so far, modulo 256
  output logic       followed_o,       // the followed beat is inside
  output logic [7:0] data_o          // and has this data
);

  logic       stalled_q;
  logic [7:0] offered_q;

  assign followed_o = 8'(follow_i - out_o) < 8'(in_o - out_o);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      in_o      <= '0;
      out_o     <= '0;
      stalled_q <= 1'b0;
    end else begin
      if (in_i) in_o <= in_o + 8'd1;
      if (in_i && in_o == follow_i) data_o <= in_data_i;
      if (m_valid_i && m_ready_i) out_o <= out_o + 8'd1;
      stalled_q <= m_valid_i && !m_ready_i;
      offered_q <= m_data_i;
    end
  end

  always_comb begin
    if (rst_ni) begin
      if (m_valid_i && out_o == follow_i && followed_o) assert (m_data_i == data_o);
      if (stalled_q) assert (m_valid_i && m_data_i == offered_q);
    end
  end

endmodule
