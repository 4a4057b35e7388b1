// A fixed delay of a pin of the ECP5, some 25 ps for each tap. A simulation leaves it out.
(* blackbox *)
module DELAYG #(
  parameter string DEL_MODE  = "USER_DEFINED",
  parameter int    DEL_VALUE = 0
) (
  input  logic A,
  output logic Z
);

`ifndef SYNTHESIS
  assign Z = A;
`endif

endmodule
