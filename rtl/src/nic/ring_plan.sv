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

  localparam int unsigned ChunkUnitsMax = ChunkBeats * Lanes / UnitFp32;
  localparam int unsigned PieceWidth    = $clog2(ChunkUnitsMax + 1);

  typedef logic [UnitsWidth-1:0] units_t;
  typedef logic [PieceWidth-1:0] piece_t;  // units of a chunk
  typedef enum logic [2:0] {StateIdle, StateDivide, StateLocate, StatePiece, StateCut, StateMeasure, StateOffer,
                            StateEnd} state_e;

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
  units_t     units_q, each_q;            // of the tensor (turned while it is divided), of the shorter segments
  logic [5:0] longer_q;                   // how many segments have a unit more
  logic [5:0] divide_left_q;
  logic [6:0] step_q;
  logic [5:0] segment_q;                  // at work
  logic       is_longer_q;                // it has a unit more
  logic [5:0] last_segment_q;             // the last that is not empty
  units_t     segment_start_q, first_start_q;
  units_t     offset_q;                   // of the pieces, from the starts of the segments
  units_t     left_q;                     // of the longest segment, from there on
  piece_t     piece_q, chunk_q;           // of the segments, of the segment at work
  logic       is_last_piece_q, ends_tensor_q;  // the chunk does
  operation_t operation_q;
  logic       is_none_q;                  // of no beats: its segment has nothing of this piece

  // --- Segments ---
  piece_t     chunk_units;
  logic [5:0] end_segment_q;                   // the last of the ring
  logic [5:0] first_segment_q, segment_before, segment_next;
  logic [6:0] last_step_q;
  logic       is_last_step, is_last_segment, is_longer_next, is_rest, is_halved, moves;
  logic [6:0] remainder;
  logic [5:0] remainder_next;
  logic       quotient_bit;

  assign chunk_units     = ring_i.bfp ? piece_t'(ChunkBeats * Lanes / UnitBfp) : piece_t'(ChunkUnitsMax);
  assign segment_before  = segment_q == '0 ? end_segment_q : segment_q - 6'd1;
  assign is_last_segment = segment_q == end_segment_q;
  assign is_last_step    = step_q == last_step_q;
  assign moves           = state_q == StateOffer && (is_none_q || operation_ready_i);

  // Which segment comes next is known before `moves` is.
  always_comb begin
    segment_next   = segment_q;
    is_longer_next = segment_q < longer_q;
    if (state_q == StateLocate && segment_q != first_segment_q) begin
      segment_next   = segment_q + 6'd1;
      is_longer_next = segment_q + 6'd1 < longer_q;
    end
    if (moves) begin
      segment_next   = is_last_step ? first_segment_q : segment_before;
      is_longer_next = is_last_step ? first_segment_q < longer_q : segment_before < longer_q;
    end
  end

  // The piece of all segments: a chunk, the rest, or a half of it.
  assign is_rest   = left_q <= units_t'(chunk_units);
  assign is_halved = left_q < units_t'({chunk_units, 1'b0});

  // --- Division of units by places, a bit a cycle ---
  assign remainder      = {longer_q, units_q[UnitsWidth-1]};
  assign quotient_bit   = remainder >= 7'(ring_i.size);
  assign remainder_next = 6'(quotient_bit ? remainder - 7'(ring_i.size) : remainder);

  // --- The chunk of this step, in two cycles: how much of the piece the segment has, and where that lies ---
  units_t      length, beyond;
  logic        reaches, fits;  // the segment goes on where the piece begins, and ends in it
  units_t      chunk_start;
  logic [32:0] start_element, chunk_elements;
  step_e       step;

  assign length         = each_q + units_t'(is_longer_q);
  assign reaches        = length > offset_q;
  assign beyond         = length - offset_q;
  assign fits           = beyond <= units_t'(piece_q);
  assign chunk_start    = segment_start_q + offset_q;
  assign start_element  = elements_of(chunk_start, ring_i.bfp);
  assign chunk_elements = elements_of(units_t'(chunk_q), ring_i.bfp);

  always_comb begin
    if (step_q == '0) step = StepSend;
    else if (step_q < 7'(ring_i.size) - 7'd1) step = StepFold;
    else if (step_q == 7'(ring_i.size) - 7'd1) step = StepFinish;
    else if (is_last_step) step = StepLast;
    else step = StepGather;
  end

  assign request_ready_o   = state_q == StateIdle;
  assign operation_valid_o = (state_q == StateOffer && !is_none_q) || state_q == StateEnd;
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
        StateLocate:  if (segment_q == first_segment_q) state_q <= StatePiece;
        StatePiece:   state_q <= StateCut;
        StateCut:     state_q <= StateMeasure;
        StateMeasure: state_q <= StateOffer;
        StateOffer:   if (moves) state_q <= !is_last_step ? StateCut : is_last_piece_q ? StateEnd : StatePiece;
        default:      if (operation_ready_i) state_q <= StateIdle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    end_segment_q   <= ring_i.size - 6'd1;
    last_step_q     <= {ring_i.size, 1'b0} - 7'd2;
    first_segment_q <= (ring_i.position == '0 ? ring_i.size : ring_i.position) - 6'd1;
    segment_q       <= state_q == StateIdle ? '0 : segment_next;
    is_longer_q     <= state_q == StateDivide ? remainder_next != '0 : is_longer_next;
    unique case (state_q)
      StateIdle: begin
        request_q       <= request_i;
        units_q         <= units_of(request_i.count, ring_i.bfp);
        divide_left_q   <= 6'(UnitsWidth - 1);
        each_q          <= '0;
        longer_q        <= '0;
        segment_start_q <= '0;
        offset_q        <= '0;
        step_q          <= '0;
      end
      StateDivide: begin
        divide_left_q <= divide_left_q - 6'd1;
        units_q       <= {units_q[UnitsWidth-2:0], units_q[UnitsWidth-1]};
        each_q        <= {each_q[UnitsWidth-2:0], quotient_bit};
        longer_q      <= remainder_next;
      end
      StateLocate: begin
        first_start_q  <= segment_start_q;
        last_segment_q <= (each_q == '0 ? longer_q : ring_i.size) - 6'd1;
        left_q         <= each_q + units_t'(longer_q != '0);
        if (segment_q != first_segment_q) segment_start_q <= segment_start_q + length;
      end
      StatePiece: begin
        piece_q         <= is_rest ? piece_t'(left_q) : is_halved ? piece_t'((left_q + 1'b1) >> 1) : chunk_units;
        is_last_piece_q <= is_rest;
      end
      StateCut: begin
        chunk_q       <= !reaches ? '0 : fits ? piece_t'(beyond) : piece_q;
        ends_tensor_q <= fits && segment_q == last_segment_q;
        // It ends where the segment of the step before starts. Before the first lies the last, one of the shorter ones.
        if (step_q != '0) begin
          segment_start_q <= is_last_segment ? units_q - each_q : segment_start_q - length;
        end
      end
      StateMeasure: begin
        operation_q.step        <= step;
        operation_q.source      <= request_q.source + {29'd0, start_element, 2'b00};
        operation_q.destination <= request_q.destination + {29'd0, start_element, 2'b00};
        operation_q.elements    <= ends_tensor_q ? 16'(request_q.count) - 16'(start_element) : 16'(chunk_elements);
        operation_q.beats       <= 16'(chunk_elements >> LaneBits);
        is_none_q               <= chunk_q == '0;
      end
      StateOffer: begin
        if (moves) begin
          step_q <= is_last_step ? '0 : step_q + 7'd1;
          if (is_last_step) begin
            segment_start_q <= first_start_q;
            offset_q        <= offset_q + units_t'(piece_q);
            left_q          <= left_q - units_t'(piece_q);
          end
        end
      end
      default: ;
    endcase
  end

endmodule
