-- Leases end: what is owed is booked, the lanes find their places, and only then the leases go. A script that died in between leaves
-- leases, and with them someone who ends them again (the reaper); never a parked lane that nobody will wake.

-- A refund cleared the debt of a lane in the ring: it is taken out and joins again.
local function refit(queue, lane, member)
  local due = tonumber(call('ZSCORE', queue.ring, member) or 0)
  if due <= queue.round then return end
  local share, cost = share_of(lane), head_cost(queue, lane)
  local deficit, last = repaid(queue, lane, share)
  if lack_on_joining(queue, deficit, last, share, cost) <= 0 then join(queue, lane, cost) end
end

local function book(queue, lane, refund)
  local deficit, last, remembered = read_credit(queue, lane)
  if refund ~= 0 then
    deficit, remembered = deficit + refund, true
    write_credit(queue, lane, deficit, last)
  end
  local member = call('HGET', queue.place, lane)
  if member then
    if refund > 0 then refit(queue, lane, member) end
  elseif remembered and call('HEXISTS', queue.parked, lane) == 0 then
    rest_outside(queue, lane, deficit, last)
  end
end

-- Book each lease's `refund` (negative: still to pay), summed by lane, in order of first appearance.
local function settle(held)
  local order, sums = {}, {}
  for _, lease in ipairs(held) do
    local name = lease.queue .. ':' .. lease.lane
    if not sums[name] then
      sums[name] = { queue = lease.queue, lane = lease.lane, refund = 0 }
      order[#order + 1] = sums[name]
    end
    sums[name].refund = sums[name].refund + lease.refund
  end
  for _, sum in ipairs(order) do book(open_queue(sum.queue), sum.lane, sum.refund) end
end

-- What a lane gets back (negative: still pays) when the slot is given back at `until_us`.
local function owed(lease, until_us)
  if not by_time or lease.postponed then return 0 end
  return lease.charged - scaled(math.max(0, until_us - lease.claimed), lease.cost)
end

-- The lease and its expiry go last: as long as they are there, the reaper ends again what was ended by half. An id is freed only by the
-- lease it is under.
local function remove(held)
  if #held == 0 then return end
  local ids, tokens, freed, lanes = {}, {}, {}, {}
  for i, lease in ipairs(held) do
    ids[i], tokens[i] = lease.id, lease.token
    local queue = open_queue(lease.queue)
    queue.running, queue.changed = math.max(0, queue.running - 1), true
    local key = queue.leases .. lease.lane
    lanes[key] = lanes[key] or {}
    lanes[key][#lanes[key] + 1] = lease.token
  end
  for i, token in ipairs(call('HMGET', root .. 'jobs', unpack(ids))) do
    if token == tokens[i] then freed[#freed + 1] = ids[i] end
  end
  if #freed > 0 then call('HDEL', root .. 'jobs', unpack(freed)) end
  for key, names in pairs(lanes) do call('ZREM', key, unpack(names)) end
  call('HDEL', root .. 'lease', unpack(tokens))
  call('ZREM', root .. 'expiry', unpack(tokens))
end

local function end_leases(held)
  settle(held)
  for _, lease in ipairs(held) do ending[lease.lane] = (ending[lease.lane] or 0) + 1 end
  local woken = {}
  for _, lease in ipairs(held) do
    if not woken[lease.lane] and limits_of(lease.lane) ~= NO_LIMITS then wake(lease.lane) end
    woken[lease.lane] = true
  end
  remove(held)
  close_queues()
  stir_all()
end
