// Memory with beats of 64 bits for the packets of a job's four messages, for block RAM. An address is a place and a
// beat of it: job, column, packet, beat. A place always counts 128 packets. Of a switch that folds shorter messages only,
// the upper bits of the packet are 0, and take no memory here.
module packet_buffer
  import switch_pkg::*;
  import aggregation_pkg::*;
#(
  parameter int unsigned Jobs    = 1,
  parameter int unsigned Packets = MessagePacketsMax,  // of the longest message; a power of two, 2 to 128
  parameter int unsigned Beats   = PayloadBeats,       // of a packet; a power of two
  parameter int unsigned Latency = 1,                  // 1 or 2, from `read_i` to `read_data_o`
  localparam int unsigned AddressWidth = PlaceWidth + $clog2(Jobs) + $clog2(Beats)
) (
  input  logic                    clk_i,

  input  logic                    write_i,
  input  logic [AddressWidth-1:0] write_address_i,
  input  logic [63:0]             write_data_i,

  input  logic                    read_i,
  input  logic [AddressWidth-1:0] read_address_i,
  output logic [63:0]             read_data_o
);

  localparam int unsigned LowWidth  = $clog2(Packets) + $clog2(Beats);            // packet and beat
  localparam int unsigned HighStart = $clog2(MessagePacketsMax) + $clog2(Beats);  // job and column
  localparam int unsigned KeptWidth = LowWidth + AddressWidth - HighStart;

  logic [KeptWidth-1:0] write_at, read_at;

  logic unused_addresses;
  assign unused_addresses = ^{write_address_i, read_address_i};

  assign write_at = {write_address_i[AddressWidth-1:HighStart], write_address_i[LowWidth-1:0]};
  assign read_at  = {read_address_i[AddressWidth-1:HighStart], read_address_i[LowWidth-1:0]};

  simple_dual_port_ram #(
    .Width  (64),
    .Depth  (Jobs * Columns * Packets * Beats),
    .Latency(Latency)
  ) u_memory (
    .clk_i,
    .write_i,
    .write_address_i(write_at),
    .write_data_i,
    .read_i,
    .read_address_i (read_at),
    .read_data_o
  );

endmodule
