// The output of an ECP5's pin at both edges: D0 while the clock is high, D1 while it is low, both taken at the rising
// edge before.
(* blackbox *)
module ODDRX1F (
  input  logic D0,
  input  logic D1,
  input  logic SCLK,
  input  logic RST,
  output logic Q
);

`ifndef SYNTHESIS
  logic high_q, low_q, low_late_q;

  always_ff @(posedge SCLK) begin
    high_q <= D0 && !RST;
    low_q  <= D1 && !RST;
  end

  always_ff @(negedge SCLK) low_late_q <= low_q;

  assign Q = SCLK ? high_q : low_late_q;
`endif

endmodule
