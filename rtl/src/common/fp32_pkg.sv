// What users of the FP32 adder must know of it.
package fp32_pkg;

  localparam int unsigned AdderStages = 9;  // cycles from operands to their sum

endpackage
