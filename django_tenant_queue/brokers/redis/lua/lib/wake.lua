-- Waking: parked lanes that may run again, and sleeping workers that should claim.
local SLEEPER_US = 2000000 -- who slept longer is gone: a live one comes back within a second
local stirred = {}

-- Let the parked lanes of a lane key join again if they may run now; note when their pause ends if not.
local function wake(lane)
  local room, reason = room_of(lane)
  local still_parked = false
  for _, name in ipairs(queue_names()) do
    if call('HEXISTS', root .. 'parked:' .. name, lane) == 1 then
      if room > 0 then
        local queue = open_queue(name)
        join(queue, lane, head_cost(queue, lane))
        stirred[name] = true
      else
        call('HSET', root .. 'parked:' .. name, lane, reason)
        still_parked = true
      end
    end
  end
  -- last, so that a script that died before leaves the wake-up where it was
  if still_parked and reason == 'paused' and limits_of(lane).paused_until > now then
    call('ZADD', root .. 'wakeups', limits_of(lane).paused_until, lane)
  else
    call('ZREM', root .. 'wakeups', lane)
  end
end

-- Wake the worker that slept longest for this queue.
local function stir(name)
  local sleepers = root .. 'sleepers:' .. name
  call('ZREMRANGEBYSCORE', sleepers, '-inf', string.format('(%.0f', now - SLEEPER_US))
  local first = call('ZPOPMIN', sleepers)[1]
  if first then call('PUBLISH', base .. 'wake:' .. first, '1') end
end

local function stir_all()
  for name in pairs(stirred) do stir(name) end
end
