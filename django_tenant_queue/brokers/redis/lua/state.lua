-- state: everything, for comparison in tests. Changes nothing; not bounded.
-- KEYS[1] meta; ARGV[1..7] see lib/context
-- Returns 'lost' | 'moved' | {corrupt, {token, lease, ...}, {queue, round, {member, round, ...}, {lane, waiting, deficit, last, parked, ...}, ...}}
--- include context
--- include queue
--- include lane
local function lanes_of(queue)
  local found, reply = {}, {}
  for _, key in ipairs({ queue.place, queue.credit, queue.parked }) do
    for _, lane in ipairs(call('HKEYS', key)) do found[lane] = true end
  end
  for lane in pairs(found) do
    local deficit, last, remembered = read_credit(queue, lane)
    for _, value in ipairs({ lane, call('ZCARD', queue.line .. lane), deficit, remembered and last or 0,
      call('HEXISTS', queue.parked, lane) }) do
      reply[#reply + 1] = value
    end
  end
  return reply
end

local queues = {}
for _, name in ipairs(queue_names()) do
  local queue = open_queue(name)
  for _, value in ipairs({ name, queue.round, call('ZRANGE', queue.ring, 0, -1, 'WITHSCORES'), lanes_of(queue) }) do
    queues[#queues + 1] = value
  end
end
return { tonumber(call('HGET', root .. 'counters', 'corrupt') or 0), call('HGETALL', root .. 'lease'), queues }
