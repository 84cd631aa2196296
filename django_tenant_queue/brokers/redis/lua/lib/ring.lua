-- The ring: lane -> round of its next visit. Member: '0' newcomer or '1', 8-byte arrival, lane; a lane's member is in `place`.
-- Order of writes: the ring before the place, the place gone before the ring: a member that is not its lane's place is dropped when met.
local NEWCOMER, REGULAR = '0', '1'

-- `old`: the lane's member until now, false for none
local function insert(queue, lane, due, group, old)
  local member = group .. struct.pack('>I8', next_arrival(queue)) .. lane
  call('ZADD', queue.ring, due, member)
  call('HSET', queue.place, lane, member)
  if old and old ~= member then call('ZREM', queue.ring, old) end -- equal when a script died before it counted the arrival
end

local function take_out(queue, lane, member)
  call('HDEL', queue.place, lane)
  call('ZREM', queue.ring, member)
end

-- note after which round the credit of a lane outside the ring is worth nothing, so that it can be forgotten
local function rest_outside(queue, lane, deficit, last)
  call('ZADD', queue.idle, last + rounds_for(-deficit, share_of(lane)), lane)
end

-- cost of the head job, as far as joining needs it
local function head_cost(queue, lane)
  local entry = not by_time and call('ZRANGE', queue.line .. lane, 0, 0)[1]
  return entry and #entry == 32 and struct.unpack('>I4', entry, 29) or 1000
end

-- deficit and last round of a lane that was outside: unspent credit dies, rounds that passed repay debt
local function repaid(queue, lane, share)
  local deficit, last = read_credit(queue, lane)
  if last >= queue.round then return deficit, last end
  if deficit < 0 then deficit = math.min(0, deficit + (queue.round - 1 - last) * share) else deficit = 0 end
  return deficit, queue.round - 1
end

local function lack_on_joining(queue, deficit, last, share, cost)
  local lack = lack_of(deficit, cost)
  if last == queue.round - 1 then lack = lack - share end -- this round's quantum is still to come
  return lack
end

-- A job (of this cost) arrived in an empty lane, a parked lane is woken, or a lane was taken out of the ring.
local function join(queue, lane, cost)
  local share = share_of(lane)
  local deficit, last = repaid(queue, lane, share)
  write_credit(queue, lane, deficit, last)
  local lack = lack_on_joining(queue, deficit, last, share, cost)
  local old = call('HGET', queue.place, lane)
  if lack <= 0 then
    insert(queue, lane, queue.round, NEWCOMER, old)
  else
    insert(queue, lane, queue.round + rounds_for(lack, share), REGULAR, old)
  end
  call('HDEL', queue.parked, lane)
  call('ZREM', queue.idle, lane)
end
