-- A queue as this script holds it: its key names, its clock. The clock is written back once, by close_queues: a script that died before
-- leaves a round that is behind, which the next visit raises, and arrival numbers that are given twice, which only tie.
local opened, every_queue = {}, nil

local function open_queue(name)
  local queue = opened[name]
  if not queue then
    local clock = call('HMGET', root .. 'clock:' .. name, 'round', 'arrivals', 'waiting', 'running')
    queue = {
      name = name, ring = root .. 'ring:' .. name, place = root .. 'place:' .. name, credit = root .. 'credit:' .. name,
      parked = root .. 'parked:' .. name, idle = root .. 'idle:' .. name,
      line = root .. 'line:' .. name .. ':', leases = root .. 'leases:' .. name .. ':', estimate = root .. 'estimate:' .. name .. ':',
      round = tonumber(clock[1] or 1), arrivals = tonumber(clock[2] or 0),
      waiting = tonumber(clock[3] or 0), running = tonumber(clock[4] or 0), changed = false,
    }
    opened[name] = queue
  end
  return queue
end

local function next_arrival(queue)
  queue.arrivals, queue.changed = queue.arrivals + 1, true
  return queue.arrivals
end

-- names of all queues that were ever published to in this epoch
local function queue_names()
  every_queue = every_queue or call('SMEMBERS', root .. 'queues')
  return every_queue
end

local function close_queues()
  for name, queue in pairs(opened) do
    if queue.changed then
      call('HSET', root .. 'clock:' .. name, 'round', queue.round, 'arrivals', queue.arrivals,
        'waiting', queue.waiting, 'running', queue.running)
    end
  end
end
