// A reset that begins at once and ends with the clock.
module reset_sync (
  input  logic clk_i,
  input  logic rst_ni,
  output logic rst_no
);

  (* ASYNC_REG = "TRUE" *) logic meta_q, released_q;

  assign rst_no = released_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      meta_q     <= 1'b0;
      released_q <= 1'b0;
    end else begin
      meta_q     <= 1'b1;
      released_q <= meta_q;
    end
  end

endmodule
