// A reset that begins at once and ends with the clock.
module reset_sync (
  input  logic clk_i,
  input  logic rst_ni,
  output logic rst_no
);

  (* ASYNC_REG = "TRUE" *) logic [1:0] released_q;

  assign rst_no = released_q[1];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      released_q <= '0;
    end else begin
      released_q <= {released_q[0], 1'b1};
    end
  end

endmodule
