// The counters of one port, in a small memory: events wait until it is their turn, one a cycle. A frame has six of them
// at most and lasts eight cycles, so none is lost; bytes, and frames that are dropped at once, add up while they wait.
module port_counters
  import switch_pkg::*;
  import switch_registers_pkg::*;
#(
  parameter bit CountsRooms = 1'b1  // 0: one frame with each DROP_ROOM
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic [Counters-1:0] event_i,
  input  logic [10:0]         bytes_in_i,   // with its event
  input  logic [10:0]         bytes_out_i,
  input  logic [4:0]          copies_i,     // with DROP_QUEUE_FULL
  input  logic [6:0]          rooms_i,      // with DROP_ROOM

  input  logic                read_i,
  input  logic [5:0]          index_i,
  output logic [47:0]         data_o        // in the cycle after
);

  localparam int unsigned AmountWidth = 14;

  logic [47:0]            memory [64];
  logic [47:0]            data;
  logic [Counters-1:0]    waiting_q, waiting_d, chosen;
  logic [AmountWidth-1:0] bytes_in_q, bytes_out_q, copies_q, rooms_q, amount_q;
  logic [5:0]             index_q, index;
  logic [6:0]             clear_q;  // the next to clear after reset; the highest bit: all are
  logic                   adds_q, clears;

  assign clears = !clear_q[6];
  assign chosen = waiting_q & (~waiting_q + 1'b1);
  assign data   = memory[index];

  always_comb begin
    index = clears ? clear_q[5:0] : read_i ? index_i : index_q;
    // The chosen counter is on its way, unless the memory is read just now.
    waiting_d = waiting_q | event_i;
    if (!read_i) waiting_d = (waiting_q & ~chosen) | event_i;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      waiting_q   <= '0;
      bytes_in_q  <= '0;
      bytes_out_q <= '0;
      copies_q    <= '0;
      rooms_q     <= '0;
      clear_q     <= '0;
      adds_q      <= 1'b0;
    end else begin
      if (clears) clear_q <= clear_q + 1'b1;
      waiting_q   <= waiting_d;
      adds_q      <= read_i ? adds_q : |chosen;
      bytes_in_q  <= (chosen[CountBytesIn] && !read_i ? '0 : bytes_in_q) +
                     (event_i[CountBytesIn] ? AmountWidth'(bytes_in_i) : '0);
      bytes_out_q <= (chosen[CountBytesOut] && !read_i ? '0 : bytes_out_q) +
                     (event_i[CountBytesOut] ? AmountWidth'(bytes_out_i) : '0);
      copies_q    <= (chosen[CountDropQueueFull] && !read_i ? '0 : copies_q) +
                     (event_i[CountDropQueueFull] ? AmountWidth'(copies_i) : '0);
      rooms_q     <= (chosen[CountDropRoom] && !read_i ? '0 : rooms_q) +
                     (event_i[CountDropRoom] ? AmountWidth'(rooms_i) : '0);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!read_i) begin
      index_q <= '0;
      for (int unsigned i = 0; i < Counters; i++) if (chosen[i]) index_q <= 6'(i);
      amount_q <= chosen[CountBytesIn]       ? bytes_in_q :
                  chosen[CountBytesOut]      ? bytes_out_q :
                  chosen[CountDropQueueFull] ? copies_q :
                  chosen[CountDropRoom] && CountsRooms ? rooms_q : AmountWidth'(1);
    end
    if (clears || (adds_q && !read_i)) memory[index] <= clears ? '0 : data + 48'(amount_q);
    data_o <= data;
  end

endmodule
