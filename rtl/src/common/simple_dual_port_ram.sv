// Memory with a port to write and one to read, for block RAM. Read data comes `Latency` cycles later; of a place that
// is written in the same cycle it is the old value.
module simple_dual_port_ram #(
  parameter int unsigned Width   = 64,
  parameter int unsigned Depth   = 512,
  parameter int unsigned Latency = 1,  // 1 or 2
  localparam int unsigned AddressWidth = $clog2(Depth)
) (
  input  logic                    clk_i,

  input  logic                    write_i,
  input  logic [AddressWidth-1:0] write_address_i,
  input  logic [Width-1:0]        write_data_i,

  input  logic                    read_i,
  input  logic [AddressWidth-1:0] read_address_i,
  output logic [Width-1:0]        read_data_o
);

  (* ram_style = "block" *) logic [Width-1:0] memory [Depth];
  logic [Width-1:0] read_q;

  always_ff @(posedge clk_i) begin
    if (write_i) memory[write_address_i] <= write_data_i;
    if (read_i) read_q <= memory[read_address_i];
  end

  if (Latency == 1) begin : gen_one
    assign read_data_o = read_q;
  end else begin : gen_two
    logic [Width-1:0] out_q;
    always_ff @(posedge clk_i) out_q <= read_q;
    assign read_data_o = out_q;
  end

endmodule
