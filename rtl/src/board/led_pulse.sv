// A light that stays on long enough to be seen: 34 ms at 125 MHz after each event.
module led_pulse #(
  parameter int unsigned Bits = 22  // of the time in cycles
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic event_i,
  output logic led_no  // lit at 0
);

  logic [Bits-1:0] left_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      left_q <= '0;
      led_no <= 1'b1;
    end else begin
      left_q <= event_i ? '1 : left_q - Bits'(left_q != '0);
      led_no <= left_q == '0;
    end
  end

endmodule
