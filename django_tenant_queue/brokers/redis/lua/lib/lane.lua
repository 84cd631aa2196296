-- What a lane has and owes, and what its next job costs it.
local NO_LIMITS = { weight = 1000, cap = -1, paused_until = 0 }
local known_limits, ending = {}, {} -- ending: lane -> leases that this script is about to end

local function limits_of(lane)
  local limits = known_limits[lane]
  if not limits then
    local packed = call('HGET', root .. 'limits', lane)
    limits = NO_LIMITS
    if packed and #packed == 16 then
      limits = {}
      limits.weight, limits.cap, limits.paused_until = struct.unpack('>I4i4i8', packed)
    end
    known_limits[lane] = limits
  end
  return limits
end

local function share_of(lane)
  return math.max(1, scaled(quantum, limits_of(lane).weight))
end

-- how many more jobs this lane key may run now, over all queues, and why none
local function room_of(lane)
  local limits = limits_of(lane)
  if limits.paused_until == -1 or limits.paused_until > now then return 0, 'paused' end
  if limits.cap < 0 then return math.huge end
  local running = -(ending[lane] or 0)
  for _, name in ipairs(queue_names()) do running = running + call('ZCARD', root .. 'leases:' .. name .. ':' .. lane) end
  return math.max(0, limits.cap - running), 'cap'
end

-- deficit, last round credited; true when they are remembered
local function read_credit(queue, lane)
  local packed = call('HGET', queue.credit, lane)
  if packed and #packed == 16 then
    local deficit, last = struct.unpack('>i8i8', packed)
    return deficit, last, true
  end
  return 0, queue.round - 1, false
end

local function write_credit(queue, lane, deficit, last)
  call('HSET', queue.credit, lane, struct.pack('>i8i8', deficit, last))
end

-- running mean of the time this lane's jobs held a slot, nil when nothing is known
local function estimate_of(queue, lane)
  local packed = call('GET', queue.estimate .. lane)
  if not (packed and #packed == 16) then return nil end
  local value, keep_until = struct.unpack('>I8I8', packed)
  return keep_until > now and value or nil
end

local function learn(queue, lane, held_times)
  local value = estimate_of(queue, lane)
  for _, held_us in ipairs(held_times) do
    value = math.max(1, value and math.floor((4 * value + held_us) / 5) or held_us)
  end
  call('SET', queue.estimate .. lane, struct.pack('>I8I8', value, now + estimate_keep_us),
    'PX', math.max(60000, math.floor(estimate_keep_us / 1000))) -- the key's own end only frees memory
end

-- credit that is missing before a job of this charge may be taken; none when <= 0
local function lack_of(deficit, charge)
  return by_time and 1 - deficit or charge - deficit
end

local function rounds_for(missing, share)
  return math.ceil(math.max(0, missing) / share)
end
