// A stream that goes to one or two takers. Each takes a beat when it can; the beat is gone when all have taken it. So no
// taker's `valid` depends on the other's `ready`.
module stream_fork (
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic       s_valid_i,
  output logic       s_ready_o,
  input  logic [1:0] to_i,       // the takers of this beat
  output logic [1:0] m_valid_o,
  input  logic [1:0] m_ready_i
);

  logic [1:0] took_q;  // of the beat that is here

  assign m_valid_o = {2{s_valid_i}} & to_i & ~took_q;
  assign s_ready_o = &(~to_i | took_q | m_ready_i);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      took_q <= '0;
    end else begin
      took_q <= s_ready_o ? '0 : took_q | (m_valid_o & m_ready_i);
    end
  end

endmodule
