-- The loop of a claim over one queue's ring, and the forgetting of lanes that owe nothing.
local LARGEST_ROUND = 4503599627370496 -- 2^52: a score written by hand must not become the round

-- A ring entry that is not its lane's place, or whose round cannot be: dropped; its lane comes in again if it has work.
local function drop_member(queue, lane, member, place)
  if place == member then
    call('HDEL', queue.place, lane)
    place = false
  end
  call('ZREM', queue.ring, member)
  drop('ring', member)
  if not place and call('EXISTS', queue.line .. lane) == 1 and call('HEXISTS', queue.parked, lane) == 0 then
    join(queue, lane, head_cost(queue, lane))
  end
end

-- A claim found the ring empty: when nothing runs either, nobody competes, and the round passes.
local function end_round_at_rest(queue)
  if queue.running == 0 and call('EXISTS', queue.idle) == 1 then queue.round, queue.changed = queue.round + 1, true end
end

-- Visit lanes until `full` jobs are taken, the ring is empty or no visit is left; the visits left.
local function serve(queue, full, visits)
  while taken < full and visits > 0 do
    local first = call('ZRANGE', queue.ring, 0, 0, 'WITHSCORES')
    local member, due = first[1], tonumber(first[2])
    if not member then
      end_round_at_rest(queue)
      return visits
    end
    visits = visits - 1
    local lane = string.sub(member, 10)
    local place = call('HGET', queue.place, lane)
    if place == member and due >= 1 and due <= LARGEST_ROUND and due == math.floor(due) then
      visit(queue, lane, member, due, full - taken)
    else
      drop_member(queue, lane, member, place)
    end
  end
  return visits
end

-- Forget up to `most` lanes whose credit is worth nothing any more; a lane with running jobs will be settled and keeps it.
local function sweep(queue, most)
  for _, lane in ipairs(call('ZRANGEBYSCORE', queue.idle, '-inf', queue.round - 1, 'LIMIT', 0, most)) do
    call('ZREM', queue.idle, lane)
    if call('EXISTS', queue.leases .. lane) == 0 then call('HDEL', queue.credit, lane) end
  end
end
