-- A lane's line, read from its head in growing steps: most lanes give one job a visit. Nothing is removed before the visit is decided.
-- Member: 8-byte arrival, 16 bytes id, task number, cost (4 bytes each).
local FIRST_STEP, LAST_STEP, SPARE_ENTRIES = 2, 500, 500

-- `passed` entries were taken or dropped; `most` bounds how many one visit looks at, however many cannot be read
local function open_line(queue, lane, slots)
  return { line = queue.line .. lane, entries = {}, held = {}, passed = 0, step = FIRST_STEP, most = slots + SPARE_ENTRIES, ended = false }
end

local function read_ahead(cursor)
  local read = #cursor.entries
  local batch = call('ZRANGE', cursor.line, read, read + cursor.step - 1)
  local ids = {}
  for i, entry in ipairs(batch) do
    cursor.entries[read + i] = entry
    if #entry == 32 then ids[#ids + 1] = string.sub(entry, 9, 24) end
  end
  if #ids > 0 then
    for i, where in ipairs(call('HMGET', root .. 'jobs', unpack(ids))) do
      if where and where ~= 'w' then cursor.held[ids[i]] = true end -- leased already
    end
  end
  cursor.ended = #batch < cursor.step
  cursor.step = math.min(4 * cursor.step, LAST_STEP)
end

local function pass(cursor, id)
  cursor.passed = cursor.passed + 1
  if id then cursor.held[id] = true end
end

-- The next job that can be read and that nobody holds: id, task number, cost. Drops what it passes over.
local function next_job(cursor)
  while cursor.passed < cursor.most do
    local entry = cursor.entries[cursor.passed + 1]
    if entry then
      if #entry == 32 then
        local id, task, cost = struct.unpack('>c16I4I4', entry, 9)
        if cost >= 1 and cost <= 1000000 and not cursor.held[id] then return id, task, cost end
      end
      drop('line', entry)
      pass(cursor)
    elseif cursor.ended then
      return nil
    else
      read_ahead(cursor)
    end
  end
end
