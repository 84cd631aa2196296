-- depths: how much each queue holds. Changes nothing.
-- KEYS[1] meta; ARGV[1..7] see lib/context
-- Returns 'lost' | 'moved' | {queue, lanes in the ring, parked, waiting, running, ...}
--- include context
--- include queue
local reply = {}
for _, name in ipairs(queue_names()) do
  local queue = open_queue(name)
  for _, value in ipairs({ name, call('ZCARD', queue.ring), call('HLEN', queue.parked), queue.waiting, queue.running }) do
    reply[#reply + 1] = value
  end
end
return reply
