// The control FSM: turns a request into the steps of a pipelined ring all-reduce, chunk by chunk.
//
// A tensor is cut into one segment a place of the ring, in units of `unit` elements (whole blocks; the last one is
// padded); the first segments are longer by a unit where the units do not divide. A segment may be far larger than the
// FIFOs: the ring goes round once for each piece of it, and takes the same piece of every segment. In step t (of 0 to
// 2N - 2) the place p works on segment p - 1 - t, modulo N.
//
// A chunk is at most `ChunkBeats` long, and what is left is halved when it is less than two chunks: short chunks would
// wait for the ring's latency. The neighbour's memory holds more than a chunk, so the ring cannot fill up and stop.
module ring_plan
  import nic_pkg::*;
#(
  parameter int unsigned Lanes      = 8,
  parameter int unsigned Block      = 16,
  parameter int unsigned ChunkBeats = 512
) (
  input  logic       clk_i,
  input  logic       rst_ni,

  input  ring_t      ring_i,      // constant while there are requests

  input  logic       request_valid_i,
  output logic       request_ready_o,
  input  span_t      request_i,

  output logic       operation_valid_o,
  input  logic       operation_ready_i,
  output operation_t operation_o
);

  localparam int unsigned UnitFp32 = 16;  // elements; also where the software cuts segments
  localparam int unsigned UnitBfp  = Block > UnitFp32 ? Block : UnitFp32;
  localparam int unsigned UnitFp32Bits = $clog2(UnitFp32);
  localparam int unsigned UnitBfpBits  = $clog2(UnitBfp);
  localparam int unsigned LaneBits     = $clog2(Lanes);
  localparam int unsigned UnitsWidth   = 32 - UnitFp32Bits + 1;

  typedef logic [UnitsWidth-1:0] units_t;
  typedef enum logic [2:0] {StateIdle, StateDivide, StateLocate, StateMeasure, StateOffer, StateEnd} state_e;

  // A number of units as elements, elements as units.
  function automatic logic [32:0] elements_of(units_t amount, logic bfp);
    return bfp ? 33'(amount) << UnitBfpBits : 33'(amount) << UnitFp32Bits;
  endfunction

  function automatic units_t units_of(logic [31:0] elements, logic bfp);
    return bfp ? units_t'((33'(elements) + 33'(UnitBfp - 1)) >> UnitBfpBits)
               : units_t'((33'(elements) + 33'(UnitFp32 - 1)) >> UnitFp32Bits);
  endfunction

  state_e     state_q;
  span_t      request_q;
  units_t     units_q, each_q;            // of the tensor, of the shorter segments
  logic [5:0] longer_q;                   // how many segments have a unit more
  logic [5:0] divide_left_q;
  logic [6:0] step_q;
  logic [5:0] segment_q;                  // at work
  units_t     segment_start_q, first_start_q;
  units_t     offset_q;                   // of the pieces, from the starts of the segments
  units_t     piece_q;
  operation_t operation_q;

  // --- Segments ---
  units_t     chunk_units, length, longest, left, beyond, piece_next, chunk_start, taken;
  logic [5:0] first_segment, segment_before;
  logic [6:0] last_step;
  logic       is_last_step, is_last_piece;
  logic [6:0] remainder;
  logic [5:0] remainder_next;
  logic       quotient_bit;

  assign chunk_units   = ring_i.bfp ? units_t'(ChunkBeats * Lanes / UnitBfp) : units_t'(ChunkBeats * Lanes / UnitFp32);
  assign first_segment = ring_i.position == '0 ? ring_i.size - 6'd1 : ring_i.position - 6'd1;
  assign segment_before = segment_q == '0 ? ring_i.size - 6'd1 : segment_q - 6'd1;
  assign last_step     = {ring_i.size, 1'b0} - 7'd2;
  assign is_last_step  = step_q == last_step;
  assign length        = each_q + units_t'(segment_q < longer_q);
  assign longest       = each_q + units_t'(longer_q != '0);

  // The next piece of all segments.
  assign taken         = state_q == StateOffer ? offset_q + piece_q : '0;
  assign left          = longest - taken;
  assign is_last_piece = left == '0;
  assign piece_next    = left <= chunk_units ? left : left < chunk_units << 1 ? (left + 1'b1) >> 1 : chunk_units;

  // This segment's part of it.
  assign beyond      = length > offset_q ? length - offset_q : '0;
  assign chunk_start = segment_start_q + offset_q;

  // --- Division of units by places, a bit a cycle ---
  assign remainder      = {longer_q, units_q[divide_left_q[4:0]]};
  assign quotient_bit   = remainder >= 7'(ring_i.size);
  assign remainder_next = 6'(quotient_bit ? remainder - 7'(ring_i.size) : remainder);

  // --- The chunk of this step ---
  units_t      chunk;
  logic [32:0] start_element, chunk_elements, rest;
  step_e       step;

  assign chunk          = beyond < piece_q ? beyond : piece_q;
  assign start_element  = elements_of(chunk_start, ring_i.bfp);
  assign chunk_elements = elements_of(chunk, ring_i.bfp);
  assign rest           = 33'(request_q.count) - start_element;

  always_comb begin
    if (step_q == '0) step = StepSend;
    else if (step_q < 7'(ring_i.size) - 7'd1) step = StepFold;
    else if (step_q == 7'(ring_i.size) - 7'd1) step = StepFinish;
    else if (is_last_step) step = StepLast;
    else step = StepGather;
  end

  assign request_ready_o   = state_q == StateIdle;
  assign operation_valid_o = (state_q == StateOffer && operation_q.beats != '0) || state_q == StateEnd;
  always_comb begin
    operation_o = operation_q;
    if (state_q == StateEnd) begin
      operation_o.step     = StepEnd;
      operation_o.elements = '0;
      operation_o.beats    = '0;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= StateIdle;
    end else begin
      unique case (state_q)
        StateIdle:    if (request_valid_i) state_q <= request_i.count == '0 ? StateEnd : StateDivide;
        StateDivide:  if (divide_left_q == '0) state_q <= StateLocate;
        StateLocate:  if (segment_q == first_segment) state_q <= StateMeasure;
        StateMeasure: state_q <= StateOffer;
        StateOffer: begin
          if (operation_q.beats == '0 || operation_ready_i) begin
            state_q <= is_last_step && is_last_piece ? StateEnd : StateMeasure;
          end
        end
        default:      if (operation_ready_i) state_q <= StateIdle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      StateIdle: begin
        request_q       <= request_i;
        units_q         <= units_of(request_i.count, ring_i.bfp);
        divide_left_q   <= 6'(UnitsWidth - 1);
        each_q          <= '0;
        longer_q        <= '0;
        segment_q       <= '0;
        segment_start_q <= '0;
        offset_q        <= '0;
        step_q          <= '0;
      end
      StateDivide: begin
        divide_left_q <= divide_left_q - 6'd1;
        each_q        <= {each_q[UnitsWidth-2:0], quotient_bit};
        longer_q      <= remainder_next;
      end
      StateLocate: begin
        first_start_q <= segment_start_q;
        piece_q       <= piece_next;
        if (segment_q != first_segment) begin
          segment_q       <= segment_q + 6'd1;
          segment_start_q <= segment_start_q + length;
        end
      end
      StateMeasure: begin
        operation_q.step        <= step;
        operation_q.source      <= request_q.source + {29'd0, start_element, 2'b00};
        operation_q.destination <= request_q.destination + {29'd0, start_element, 2'b00};
        operation_q.elements    <= chunk_elements < rest ? chunk_elements[15:0] : rest[15:0];
        operation_q.beats       <= 16'(chunk_elements >> LaneBits);
      end
      StateOffer: begin
        if (operation_q.beats == '0 || operation_ready_i) begin
          if (is_last_step) begin
            step_q          <= '0;
            segment_q       <= first_segment;
            segment_start_q <= first_start_q;
            offset_q        <= offset_q + piece_q;
            piece_q         <= piece_next;
          end else begin
            step_q          <= step_q + 7'd1;
            segment_q       <= segment_before;
            // The segment before ends where this one starts; before the first lies the last, one of the shorter ones.
            segment_start_q <= segment_q == '0 ? units_q - each_q
                                               : segment_start_q - each_q - units_t'(segment_before < longer_q);
          end
        end
      end
      default: ;
    endcase
  end

endmodule
