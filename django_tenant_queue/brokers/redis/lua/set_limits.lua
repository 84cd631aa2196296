-- set_limits: replace the limits of lane keys. They act on the backlog at once: positions follow the weight, parked lanes wake.
-- KEYS[1] meta; ARGV[1..7] see lib/context; ARGV[8..] lane, weight, most running or -1, paused until, ...
-- Returns 'lost' | 'moved' | 'ok'
-- Keeps: rounds that passed are paid at the old weight; no lane that may run stays parked.
--- include context
--- include queue
--- include lane
--- include ring
--- include wake

-- `change` is called between paying at the old weight and taking the place of the new one.
local function reweigh(lane, change)
  local old, seen = share_of(lane), {}
  for _, name in ipairs(queue_names()) do
    local queue = open_queue(name)
    local _, _, remembered = read_credit(queue, lane)
    if remembered then
      write_credit(queue, lane, repaid(queue, lane, old))
      seen[#seen + 1] = queue
    end
  end
  change()
  for _, queue in ipairs(seen) do
    if call('HEXISTS', queue.place, lane) == 1 then
      join(queue, lane, head_cost(queue, lane))
    elseif call('HEXISTS', queue.parked, lane) == 0 then
      rest_outside(queue, lane, read_credit(queue, lane))
    end
  end
end

for i = 8, #ARGV, 4 do
  local lane, weight, cap, paused_until = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local function change()
    if weight == NO_LIMITS.weight and cap == NO_LIMITS.cap and paused_until == NO_LIMITS.paused_until then
      call('HDEL', root .. 'limits', lane)
    else
      call('HSET', root .. 'limits', lane, struct.pack('>I4i4i8', weight, cap, paused_until))
    end
    known_limits[lane] = nil
  end
  if weight ~= limits_of(lane).weight then reweigh(lane, change) else change() end
  wake(lane)
end
close_queues()
stir_all()
return 'ok'
