// Writes AGG_MODE when the switch starts, and again when the board's own switch is moved: so a board folds fp32 or int32
// without a host at its registers. It is a master of AXI-Lite that only writes.
module start_settings
  import switch_registers_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        is_float_i,  // a pin: numbers without a stated format are fp32, else int32

  output logic [12:0] awaddr_o,
  output logic        awvalid_o,
  input  logic        awready_i,  // with it, the register takes wdata_o
  output logic [31:0] wdata_o
);

  (* ASYNC_REG = "TRUE" *) logic is_float_meta_q, is_float_seen_q;
  logic is_written_q, written_q, writes_q;

  assign awaddr_o  = OffsetAggMode;
  assign awvalid_o = writes_q;
  assign wdata_o   = {31'd0, written_q};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_written_q <= 1'b0;
      written_q    <= 1'b0;
      writes_q     <= 1'b0;
    end else if (writes_q) begin
      writes_q <= !awready_i;
    end else if (!is_written_q || written_q != is_float_seen_q) begin
      is_written_q <= 1'b1;
      written_q    <= is_float_seen_q;
      writes_q     <= 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    is_float_meta_q <= is_float_i;
    is_float_seen_q <= is_float_meta_q;
  end

endmodule
